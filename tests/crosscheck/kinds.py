"""The kinds of cases, by the names of their modules."""
import importlib

KINDS = ["ops", "graphs", "networks", "onnx"]
MODULES = {"ops": "ops", "graphs": "graphs", "networks": "networks",
           "onnx": "onnx_nodes"}


def module(kind):
    return importlib.import_module(MODULES[kind])
