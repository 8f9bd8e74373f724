"""The table of vendors' figures, and what it says of measured rates."""

from __future__ import annotations

import pytest

from kopt import datasheets
from kopt.model.device import Peaks

SXM, PCIE = "NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe"
H100_SXM = Peaks(
    copy_gb_s=3030,
    read_gb_s=3110,
    write_gb_s=3280,
    fp32_tflops=51,
    tf32_tflops=410,
    bf16_tflops=800,
)
"""Measured on one."""


def test_the_two_h100_are_two_devices():
    sxm, pcie = datasheets.lookup(SXM), datasheets.lookup(PCIE)
    assert sxm is not None
    assert pcie is not None
    assert (sxm.bandwidth_gb_s, pcie.bandwidth_gb_s) == (3350, 2000)
    assert sxm.names == (SXM,)
    assert pcie.names == (PCIE,)


@pytest.mark.parametrize(
    "name", ["NVIDIA H100", "H100", "NVIDIA H100 80GB", "NVIDIA H100 PCIe 80GB", "", "NVIDIA",
             "NVIDIA A100", "AMD Instinct MI300X", "Intel(R) Xeon(R) Processor",
             "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA GeForce RTX 4090 Laptop GPU"],
)  # fmt: skip
def test_a_name_that_is_not_in_the_table_is_no_device_of_it(name):
    assert datasheets.lookup(name) is None
    assert datasheets.cross_check(name, H100_SXM) == []


@pytest.mark.parametrize("name", ["H100 PCIe", "  nvidia  h100  pcie "])
def test_case_spaces_and_the_vendor_do_not_matter(name):
    assert datasheets.lookup(name) == datasheets.lookup(PCIE)


def test_every_entry_is_sane():
    sheets = datasheets.entries()
    names = [name for sheet in sheets for name in sheet.names]
    assert len(names) == len(set(names)) >= 30
    for sheet in sheets:
        assert datasheets.lookup(sheet.names[0]) is sheet
        assert "NVIDIA" in sheet.source
        assert sheet.bandwidth_gb_s is None or 100 < sheet.bandwidth_gb_s < 10_000
        assert sheet.fp32_tflops is None or 1 < sheet.fp32_tflops < 200
        rates = [sheet.fp32_tflops, sheet.tf32_tflops, sheet.fp16_tflops, sheet.fp8_tflops]
        known = [rate for rate in rates if rate is not None]
        assert known == sorted(known), sheet.names
        if sheet.bf16_tflops is not None:
            assert sheet.bf16_tflops == sheet.fp16_tflops
        if sheet.tf32_tflops is not None and sheet.fp16_tflops is not None:
            # a halved operand doubles the rate, as far as rounded figures tell
            assert sheet.fp16_tflops / sheet.tf32_tflops == pytest.approx(2, rel=0.03)
        if sheet.fp8_tflops is not None and sheet.fp16_tflops is not None:
            assert sheet.fp8_tflops / sheet.fp16_tflops == pytest.approx(2, rel=0.03)


@pytest.mark.parametrize(
    "name", ["Tesla V100-SXM2-16GB", "Tesla V100-SXM2-32GB", "Tesla T4", "NVIDIA A10", "NVIDIA A10G",
             "NVIDIA A30", "NVIDIA A40", "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB",
             "NVIDIA A100-PCIE-40GB", "NVIDIA A100 80GB PCIe", "NVIDIA L4", "NVIDIA L40",
             "NVIDIA L40S", "NVIDIA H100 NVL", "NVIDIA H200", "NVIDIA GH200 480GB", "NVIDIA B200",
             "NVIDIA GeForce RTX 3080", "NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 4080",
             "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 5090", "NVIDIA RTX A6000",
             "NVIDIA RTX 6000 Ada Generation"],
)  # fmt: skip
def test_the_usual_devices_are_there(name):
    sheet = datasheets.lookup(name)
    assert sheet is not None
    assert name in sheet.names


def test_what_was_measured_on_an_h100_is_in_order_there():
    assert datasheets.cross_check(SXM, H100_SXM) == []


def test_the_same_rates_cannot_be_those_of_a_pcie_card():
    found = datasheets.cross_check(PCIE, H100_SXM)
    assert [sentence.split(" is ")[0] for sentence in found] == [
        f"{PCIE}: the measured memory bandwidth of 3280 GB/s",
        f"{PCIE}: the measured TF32 rate of 410 TFLOP/s",
        f"{PCIE}: the measured BF16 rate of 800 TFLOP/s",
    ]
    assert "164% of the 2000 GB/s in NVIDIA H100" in found[0]
    assert all("the measurement is wrong" in sentence for sentence in found)


def test_a_rate_far_below_is_said_with_what_to_look_at():
    [sentence] = datasheets.cross_check(SXM, Peaks(copy_gb_s=1900, bf16_tflops=700))
    assert "the measured memory bandwidth of 1900 GB/s is 57% of the 3350 GB/s" in sentence
    assert "throttled" in sentence
    assert "nvidia-smi" in sentence


def test_what_was_not_measured_is_not_spoken_of():
    assert datasheets.cross_check(SXM, Peaks()) == []
