"""The kinds of cases, by the names of their modules."""
import importlib

KINDS = ["ops", "graphs", "networks", "onnx", "remote", "records", "pictures",
         "store"]
MODULES = {"ops": "ops", "graphs": "graphs", "networks": "networks",
           "onnx": "onnx_nodes", "remote": "remote", "records": "records",
           "pictures": "pictures",
           "store": "store"}


def module(kind):
    return importlib.import_module(MODULES[kind])
