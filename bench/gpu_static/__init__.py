# SPDX-License-Identifier: Apache-2.0
"""Kernels for GPUs, compiled with no GPU: scripts/check-gpu, bench/gpu-static/model."""
