# SPDX-License-Identifier: Apache-2.0
"""make_golden.py STRINGS VOCABULARY GOLDEN

Writes the ids that Hugging Face's BertTokenizer gives for the strings, under each of the settings below.
"""

import json
import sys

import tokenizers
import transformers

# do_lower_case, strip_accents, tokenize_chinese_chars
SETTINGS = {
    "uncased": (True, None, True),
    "cased": (False, None, True),
    "lower": (True, False, True),
    "strip": (False, True, True),
    "whole": (True, None, False),
}


def make(vocabulary, lower, strip, chinese):
    return transformers.BertTokenizerFast(
        vocab=vocabulary, do_lower_case=lower, strip_accents=strip, tokenize_chinese_chars=chinese
    )


def spans(tokenizer, text):
    """The bytes of the text that each id comes from; the library counts characters."""
    at = [0]
    for character in text:
        at.append(at[-1] + len(character.encode()))
    pairs = tokenizer(text, return_offsets_mapping=True)["offset_mapping"][1:-1]
    return [[at[begin], at[end]] for begin, end in pairs]


def case(tokenizer, entry):
    text = entry["text"]
    ids = {name: one(text)["input_ids"] for name, one in tokenizer.items()}
    made = {"name": entry["name"], "utf8": text.encode().hex(), "ids": ids}
    if "like" in entry:  # the library's tables are older: what it gives for an older character of the same kind
        made["reference"] = ids
        made["ids"] = {name: one(entry["like"])["input_ids"] for name, one in tokenizer.items()}
        made["why"] = entry["why"]
    else:
        made["spans"] = spans(tokenizer["uncased"], text)
    return made


def main():
    strings, vocabulary, golden = sys.argv[1:]
    with open(strings, encoding="ascii") as file:
        entries = json.load(file)
    tokenizer = {name: make(vocabulary, *settings) for name, settings in SETTINGS.items()}
    lines = [json.dumps(case(tokenizer, entry), separators=(",", ":")) for entry in entries]
    versions = {"transformers": transformers.__version__, "tokenizers": tokenizers.__version__}
    with open(golden, "w", encoding="ascii") as file:
        file.write('{"reference": %s,\n"cases": [\n%s\n]}\n' % (json.dumps(versions), ",\n".join(lines)))
    print(f"{len(lines)} strings under {len(SETTINGS)} settings")


main()
