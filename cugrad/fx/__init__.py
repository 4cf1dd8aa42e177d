"""torch.fx: graphs of what functions and modules call, made by running them with proxies.

`_symbolic_trace.py` traces: begin there. A `Proxy` (`proxy.py`) takes calls by
`__torch_function__` and makes a `Node` (`node.py`) of each in a `Graph` (`graph.py`), with the
arguments that `binding.py` fills in. `codegen.py` writes the graph as
Python, with the names of `naming.py`, and a `GraphModule` (`graph_module.py`) runs that.
`interpreter.py` runs a graph node by node, `subgraph_rewriter.py` replaces pieces of it, and
`passes` has what is done with all of it. Other rooms import nothing from here.
"""

from ..runtime.absent import explain as _explain
from . import immutable_collections as immutable_collections
from ._symbolic_trace import PH as PH
from ._symbolic_trace import ProxyableClassMeta as ProxyableClassMeta
from ._symbolic_trace import Tracer as Tracer
from ._symbolic_trace import symbolic_trace as symbolic_trace
from ._symbolic_trace import wrap as wrap
from .graph import CodeGen as CodeGen
from .graph import Graph as Graph
from .graph_module import GraphModule as GraphModule
from .interpreter import Interpreter as Interpreter
from .interpreter import Transformer as Transformer
from .node import Node as Node
from .node import has_side_effect as has_side_effect
from .node import map_arg as map_arg
from .proxy import Proxy as Proxy
from .subgraph_rewriter import replace_pattern as replace_pattern

__all__ = [
    "CodeGen", "Graph", "GraphModule", "Interpreter", "Node", "Proxy", "Tracer", "Transformer",
    "has_side_effect", "map_arg", "replace_pattern", "symbolic_trace", "wrap",
]  # fmt: skip

_explain(__name__)
