"""Requantise a GGUF model to Q8_0: `python requantise.py SOURCE TARGET` (needs the gguf package on the path).

Every quantised tensor becomes Q8_0; the others and all metadata are copied.
"""

from __future__ import annotations

import sys

from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize, quantize

KEEP = {GGMLQuantizationType.F32, GGMLQuantizationType.F16, GGMLQuantizationType.BF16}
MOSTLY_Q8_0 = 7
"""`general.file_type` of a model whose matrices are Q8_0."""


def requantise(source: str, target: str) -> None:
    """Write `target` from `source`."""
    reader = GGUFReader(source)
    writer = GGUFWriter(target, str(reader.fields["general.architecture"].contents()))
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        value = MOSTLY_Q8_0 if field.name == "general.file_type" else field.contents()
        kind = field.types[0]
        sub_type = field.types[-1] if kind == GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, value, kind, sub_type=sub_type)
    for tensor in reader.tensors:
        if tensor.tensor_type in KEEP:
            writer.add_tensor(tensor.name, tensor.data)
        else:
            values = dequantize(tensor.data, tensor.tensor_type)
            q8 = GGMLQuantizationType.Q8_0
            writer.add_tensor(tensor.name, quantize(values, q8), raw_dtype=q8)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    requantise(sys.argv[1], sys.argv[2])
