"""Measured rates of this machine's CPU, at tiny sizes: what is there, and what is put back."""

from __future__ import annotations

import datetime

import pytest
import torch

from kopt_torch import TorchBackend, machine
from kopt_torch.peaks import Effort, _Clock, _tflops, measure

TINY = Effort(
    buffer_bytes=1 << 20, largest_product=128, product_seconds=0.01, seconds=0.0, fewest=3
)


@pytest.fixture(scope="module")
def peaks():
    return measure("cpu", TINY)


def test_a_cpu_has_bandwidths_and_rates(peaks):
    rates = (peaks.copy_gb_s, peaks.read_gb_s, peaks.write_gb_s, peaks.fp32_tflops,
             peaks.bf16_tflops)  # fmt: skip
    assert all(rate is not None and rate > 0 for rate in rates)
    assert peaks.bandwidth_gb_s == max(rates[:3])
    assert all(0.01 < rate < 100_000 for rate in rates[:3])  # GB/s, not bytes or TB
    assert 1e-6 < peaks.fp32_tflops < 1000  # TFLOP/s, not GFLOP/s


def test_what_a_cpu_does_not_have_is_none(peaks):
    assert (peaks.tf32_tflops, peaks.fp8_tflops, peaks.launch_us) == (None, None, None)


def test_when_and_with_what_is_written_down(peaks):
    today = datetime.datetime.now(datetime.UTC).date()
    assert abs(today - datetime.date.fromisoformat(peaks.measured)) <= datetime.timedelta(days=1)
    assert peaks.versions["torch"] == torch.__version__


def test_switches_are_put_back():
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    try:
        measure("cpu", TINY)
        assert torch.get_num_threads() == 1
        assert torch.get_float32_matmul_precision() == "high"
        assert not torch.is_inference_mode_enabled()
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)


@pytest.mark.parametrize("error", [RuntimeError("out of memory"), NotImplementedError()])
def test_a_product_that_does_not_run_has_no_rate(error):
    def make(extent):
        raise error

    assert _tflops(make, TINY, _Clock("cpu", TINY)) is None


def test_products_grow_until_they_take_long_enough():
    asked = []

    def make(extent):
        asked.append(extent)
        return lambda: None

    effort = Effort(buffer_bytes=1, largest_product=2000, product_seconds=1.0, seconds=0.0)
    rate = _tflops(make, effort, _Clock("cpu", effort))
    assert asked == [256, 512, 1024]
    assert rate is not None
    slow = Effort(buffer_bytes=1, largest_product=2000, product_seconds=0.0, seconds=0.0)
    asked.clear()
    _tflops(make, slow, _Clock("cpu", slow))
    assert asked == [256]


def test_the_usual_effort_outgrows_the_cache_and_fits_the_memory():
    cpu = machine.find_device("cpu").model_copy(
        update={"cache_bytes": 100 << 20, "memory_bytes": 64 << 30}
    )
    assert Effort.usual(cpu).buffer_bytes == 400 << 20
    assert Effort.usual(cpu).largest_product == 4096
    small = cpu.model_copy(update={"memory_bytes": 256 << 20})
    assert Effort.usual(small).buffer_bytes == 32 << 20
    assert 3 * 4 * Effort.usual(small).largest_product ** 2 <= 32 << 20
    gpu = cpu.model_copy(update={"kind": "cuda", "cache_bytes": 50 << 20, "memory_bytes": 80 << 30})
    assert Effort.usual(gpu).buffer_bytes == 1 << 30
    assert Effort.usual(gpu).largest_product == 8192


def test_another_kind_of_device_is_left_to_other_backends():
    assert TorchBackend(TorchBackend.Options()).kopt_measure_device("tpu") is None
