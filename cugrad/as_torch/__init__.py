"""From the import of this module on, `import torch` imports cugrad: programs run as they are.

`import cugrad.as_torch` as the first line of a program, or `python -m cugrad.as_torch program.py`,
is the switch. After a plain `import cugrad`, `with cugrad.as_torch.installed():` switches for a
while. All of it is in the room `alias`: begin with its `switch.py`. docs/as-torch.md says what to
expect.
"""

from ..alias import install as _install
from ..alias import installed as installed

_install()
