
# name of the peer: its module here, and the packages it needs with the oldest versions that have what is called
PEERS = {
    "torch": ("peers.pytorch", {"torch": "2.6"}),
    "ort": ("peers.onnx_runtime", {"onnxruntime": "1.22", "onnx": "1.18"}),
    "openvino": ("peers.openvino_sdpa", {"openvino": "2025.0"}),
}
ALWAYS = {"numpy": "2.0"}
