"""What a token costs in accelerator time, and with it in dollars and joules.

An accelerator is paid for by the second, working or not, and so is its power. So a token costs what it occupies.
"""

from dataclasses import dataclass

from perfmodel._ops import Value, real
from perfmodel.deployment import Deployment
from perfmodel.quantity import check_value, check_values
from perfmodel.roofline import decode_time, prefill_time


@dataclass(frozen=True)
class TokenCost:
    """What one input token and one output token cost: accelerator-seconds, dollars or joules."""

    input: Value
    output: Value

    def request(self, prompt: Value, output: Value) -> Value:
        """What a request of `prompt` input and `output` output tokens costs."""
        check_values("request", 0, prompt=prompt, output=output)
        return real(self.input) * real(prompt) + real(self.output) * real(output)


def accelerator_seconds(deployment: Deployment, batch: Value, prompt: Value, output: Value) -> TokenCost:
    """Accelerator-seconds of a token, in a replica that never waits for requests.

    The rule: input tokens pay for the prefill, which a request has to itself, and output tokens for its share of
    N_out - 1 decode steps (the prefill brings the first). For pools of their own take `input` from the prefill pool's
    deployment and `output` from the decode pool's.

    Parameters
    ----------
    deployment : Deployment
    batch : float, array or symbol
        Requests B of a decode step.
    prompt, output : float, array or symbol
        Tokens S and N_out of a request.

    Returns
    -------
    TokenCost
        Accelerator-seconds. A measured pool costs its accelerators over its tokens a second instead.
    """
    check_value("accelerator_seconds", "output", output, minimum=1)
    d, prompt, output = deployment, real(prompt), real(output)
    # The stages of a pipeline work on different prompts meanwhile: one prompt holds each for a p-th of its prefill.
    prefill = prefill_time(d, prompt).total / d.pipeline_parallel
    step = decode_time(d, batch, prompt + output / 2).total
    return TokenCost(
        input=d.replica * prefill / prompt,
        output=d.replica * (output - 1) * step / (real(batch) * output),
    )


def dollars_per_token(seconds: TokenCost, price: Value, busy: Value = 1) -> TokenCost:
    """Dollars of an input and of an output token; a million times as much is the usual price tag.

    Parameters
    ----------
    seconds : TokenCost
        Accelerator-seconds of a token.
    price : float, array or symbol
        Dollars for a second of an accelerator: a 3600th of the price of an hour.
    busy : float, array or symbol
        Share of the time that the accelerators work; idle time is paid by the tokens too.
    """
    check_value("dollars_per_token", "price", price, minimum=0)
    check_value("dollars_per_token", "busy", busy, maximum=1)
    return _times(seconds, real(price) / real(busy))


def joules_per_token(
    seconds: TokenCost, power: Value, pue: Value = 1, busy: Value = 1, idle_power: Value = 0
) -> TokenCost:
    """Joules of an input and of an output token.

    Parameters
    ----------
    seconds : TokenCost
        Accelerator-seconds of a token.
    power : float, array or symbol
        Watts of an accelerator at work, its part of the server counted. Data sheets print the most it may take, which
        memory-bound steps stay below.
    pue : float, array or symbol
        Power usage effectiveness: what the data centre takes over what its servers take.
    busy : float, array or symbol
        Share of the time that the accelerators work.
    idle_power : float, array or symbol
        Watts of an accelerator in the rest of the time.
    """
    check_value("joules_per_token", "power", power)
    check_value("joules_per_token", "pue", pue, minimum=1)
    check_value("joules_per_token", "busy", busy, maximum=1)
    check_value("joules_per_token", "idle_power", idle_power, minimum=0)
    busy = real(busy)
    return _times(seconds, real(pue) * (real(power) + real(idle_power) * (1 - busy) / busy))


def _times(cost: TokenCost, factor: Value) -> TokenCost:
    return TokenCost(real(cost.input) * factor, real(cost.output) * factor)
