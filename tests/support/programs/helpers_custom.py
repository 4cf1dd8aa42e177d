"""Functions of users that a program may apply, beside those of text.py, and a hook that derives."""

from __future__ import annotations

CUSTOM_HELPERS = {
    "Inner": '''
class Inner(t.autograd.Function):
    """Its backward is a pass of its own."""

    @staticmethod
    def forward(ctx, x):
        with t.enable_grad():
            y = x.detach().requires_grad_()
            z = y.sin() * y
        ctx.kept = y, z
        return z.detach()

    @staticmethod
    def backward(ctx, g):
        y, z = ctx.kept
        return t.autograd.grad(z, y, g, retain_graph=True, create_graph=t.is_grad_enabled())[0]
''',
    "Mapped": """
class Mapped(t.autograd.Function):
    @staticmethod
    def forward(x):
        return x.square()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return 2 * g * x.conj()

    @staticmethod
    def vmap(info, in_dims, x):
        return Mapped.apply(x), in_dims[0]
""",
    "Shown": """
class Shown(t.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g * 3
""",
    "Passed": """
class Passed(t.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x, y * 2

    @staticmethod
    def backward(ctx, g, h):
        return g * 3, h * 2
""",
    "Chosen": """
class Chosen(t.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, y):
        ctx.scale, ctx.shapes = scale, (x.shape, y.shape)
        return x * scale + y

    @staticmethod
    def backward(ctx, g):
        one, two = ctx.shapes
        x = (g * ctx.scale).sum_to_size(one) if ctx.needs_input_grad[0] else None
        return x, None, g.sum_to_size(two) if ctx.needs_input_grad[2] else None
""",
    "Halved": """
class Halved(t.autograd.Function):
    @staticmethod
    def forward(x):
        return x.mul_(.5)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_dirty(*inputs)

    @staticmethod
    def backward(ctx, g):
        return g * .5

    @staticmethod
    def jvp(ctx, a):
        return a.mul_(.5)
""",
    "derived": '''
def derived(g):
    """A hook with a pass of its own, which makes nothing of a gradient that is zero."""
    with t.enable_grad():
        y = g.detach().requires_grad_()
        z = y.sin()
        return t.autograd.grad((z * z.conj()).real.sum(), y)[0]
''',
}
