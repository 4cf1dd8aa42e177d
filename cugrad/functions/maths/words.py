"""What the elementwise functions compute, in a few words each: the text that `help` shows."""

from __future__ import annotations

from ...errors import FormulaError

__all__ = ["WORDS", "words_of"]


def words_of(name: str) -> str:
    """What a public row computes; FormulaError if neither the row nor this file says it."""
    if name not in WORDS:
        raise FormulaError(
            f"row {name}: a public function wants doc='...', what it computes in a few words; "
            "or public=False"
        )
    return WORDS[name]


WORDS = {
    "add": "input + other", "sub": "input - other", "mul": "input * other", "div": "input / other",
    "neg": "-input", "square": "input²", "reciprocal": "1 / input",
    "floor_divide": "the quotient, rounded down", "pow": "input to the power `exponent`",
    "remainder": "input - other * floor(input / other), with the sign of `other`",
    "fmod": "the remainder of the division, with the sign of `input`",
    "exp": "e to the power `input`", "exp2": "2 to the power `input`",
    "expm1": "exp(input) - 1, exact also near 0", "log": "the natural logarithm",
    "log2": "the logarithm to the base 2", "log10": "the logarithm to the base 10",
    "log1p": "log(1 + input), exact also near 0", "sqrt": "the square root, nan below 0",
    "rsqrt": "1 / √input", "sin": "the sine of radians", "cos": "the cosine of radians",
    "tan": "the tangent of radians", "asin": "the inverse of the sine, in radians",
    "acos": "the inverse of the cosine, in radians",
    "atan": "the inverse of the tangent, in radians",
    "atan2": "the angle of the point (other, input), in [-π, π]", "sinh": "the hyperbolic sine",
    "cosh": "the hyperbolic cosine", "tanh": "the hyperbolic tangent",
    "asinh": "the inverse of the hyperbolic sine", "acosh": "the inverse of the hyperbolic cosine",
    "atanh": "the inverse of the hyperbolic tangent", "abs": "the absolute value",
    "floor": "rounded down", "ceil": "rounded up", "trunc": "rounded towards 0",
    "frac": "what is behind the point, with the sign of `input`",
    "maximum": "the larger of two; nan if one is", "minimum": "the smaller of two; nan if one is",
    "fmax": "the larger of two; the other if one is nan",
    "fmin": "the smaller of two; the other if one is nan",
    "clamp_min": "`input`, at least `min`", "clamp_max": "`input`, at most `max`",
    "eq": "input == other", "ne": "input != other", "lt": "input < other", "le": "input <= other",
    "gt": "input > other", "ge": "input >= other", "logical_and": "whether both are not 0",
    "logical_or": "whether one is not 0", "logical_xor": "whether just one is not 0",
    "logical_not": "whether it is 0", "bitwise_and": "the bits that both have",
    "bitwise_or": "the bits that one has", "bitwise_xor": "the bits that just one has",
    "bitwise_not": "all bits turned", "bitwise_left_shift": "bits moved up by `other`",
    "bitwise_right_shift": "bits moved down by `other`", "isnan": "whether it is nan",
    "isinf": "whether it is infinite", "isfinite": "whether it is neither infinite nor nan",
    "isposinf": "whether it is +inf", "isneginf": "whether it is -inf",
    "signbit": "whether the sign is minus, that of -0.0 too", "conj": "the complex conjugate",
    "nextafter": "the next number of the dtype after `input` towards `other`",
    "logaddexp": "log(exp(input) + exp(other)), without overflow",
    "logaddexp2": "log2(2**input + 2**other), without overflow",
    "hypot": "√(input² + other²), without overflow",
    "copysign": "the size of `input` with the sign of `other`",
    "gcd": "the greatest common divisor of integers",
    "lcm": "the least common multiple of integers", "erf": "the error function",
    "erfc": "1 - erf(input), exact also far out", "erfinv": "the inverse of the error function",
    "hardshrink": "0 where |input| <= lambd", "sigmoid": "1 / (1 + exp(-input))",
    "relu": "input where it is above 0, else 0",
    "sgn": "the sign; of a complex number, that of length 1 in its direction",
    "sign": "-1, 0 or 1",
    "angle": "the angle of a complex number, in radians",
    "xlogy": "input * log(other), 0 where input is 0",
    "logit": "log(input / (1 - input)), of input clamped to [eps, 1 - eps] if `eps` is given",
    "sinc": "sin(πx) / (πx), 1 at 0", "deg2rad": "degrees in radians",
    "rad2deg": "radians in degrees", "lerp": "input + weight * (end - input)",
    "addcmul": "input + value * tensor1 * tensor2", "addcdiv": "input + value * tensor1 / tensor2",
    "nan_to_num": "with numbers for nan, +inf and -inf",
    "lgamma": "log |Γ(input)|", "digamma": "the derivative of log Γ",
    "polygamma": "the derivative of digamma, n times", "i0": "the Bessel function I₀",
    "igamma": "the lower regularised incomplete gamma function",
    "igammac": "the upper regularised incomplete gamma function",
    "heaviside": "0 below 0, 1 above, `values` at 0",
    "round": "rounded to the nearest, of two the even one, to `decimals` digits",
}  # fmt: skip
