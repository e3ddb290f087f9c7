"""scripts/sass_check.py, on machine code that a test wrote down."""

import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import sass_check  # noqa: E402


def sass(text, name="kernel"):
    """As cuobjdump prints it: an address before each instruction, its bits
    behind and on a line of their own. "LABEL:" names the next address."""
    lines, labels, at = [], {}, 0
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.endswith(":"):
            labels[line[:-1]] = f"{at:#x}"
        else:
            lines.append((at, line))
            at += 16
    out = [f"\t\tFunction : {name}",
           '\t.headerflags\t@"EF_CUDA_SM90 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM90)"']
    for at, line in lines:
        for label, address in labels.items():
            line = line.replace(label, address)
        out += [f"        /*{at:04x}*/    {line} ;   /* 0x00000a00ff017b82 */",
                "                                  /* 0x000fe20000000800 */"]
    return "\n".join(out)


def figures(text):
    (code,) = sass_check.functions_of(sass(text)).values()
    return sass_check.figures_of(code)


class Figures(unittest.TestCase):
    def test_loads_that_are_used_one_by_one(self):
        found = figures("""
            LDC R1, c[0x0][0x28]
            HEAD:
            LDG.E.128 R4, desc[UR4][R2.64]
            HADD2.F32 R20, -RZ, R4.H0_H0
            LDG.E.128 R8, desc[UR4][R2.64+0x10]
            FADD R20, R20, R11
            @P0 BRA HEAD
            EXIT""")
        self.assertEqual(found, {"ahead": 1, "narrow": 0, "slow": 0,
                                 "local": 0})

    def test_loads_that_are_issued_together(self):
        found = figures("""
            HEAD:
            LDG.E.128 R4, desc[UR4][R2.64]
            IADD3 R2, R2, 0x10, RZ
            @!P1 LDG.E.128.CONSTANT R8, desc[UR4][R2.64]
            LD.E.128 R12, R2.64
            FADD R20, R20, R14
            LDG.E.128 R16, desc[UR4][R2.64]
            FADD R20, R20, R5
            @P0 BRA HEAD
            EXIT""")
        self.assertEqual(found["ahead"], 3)

    def test_an_address_is_a_use(self):
        found = figures("""
            HEAD:
            LDG.E.128 R4, desc[UR4][R2.64]
            LDG.E.128 R8, desc[UR4][R6.64]
            @P0 BRA HEAD
            EXIT""")
        self.assertEqual(found["ahead"], 1)

    def test_a_branch_between_loads_holds_them_up(self):
        # The flaw that "whole" was as an argument of kernels.
        found = figures("""
            HEAD:
            @P1 BRA SLOW1
            LDG.E.128 R4, desc[UR4][R2.64]
            BRA JOIN1
            SLOW1:
            LDG.E.U16 R4, desc[UR4][R2.64]
            JOIN1:
            @P1 BRA SLOW2
            LDG.E.128 R8, desc[UR4][R2.64]
            BRA JOIN2
            SLOW2:
            LDG.E.U16 R8, desc[UR4][R2.64]
            JOIN2:
            FADD R20, R4, R8
            @P0 BRA HEAD
            EXIT""")
        self.assertEqual(found["ahead"], 1)
        self.assertEqual(found["narrow"], 2)

    def test_a_way_out_between_loads_does_not(self):
        found = figures("""
            HEAD:
            LDG.E.128 R4, desc[UR4][R2.64]
            @P1 BRA OUT
            LDG.E.128 R8, desc[UR4][R2.64]
            FADD R20, R4, R8
            @P0 BRA HEAD
            OUT:
            EXIT""")
        self.assertEqual(found["ahead"], 2)

    def test_the_loop_that_holds_no_other_is_looked_at(self):
        found = figures("""
            OUTER:
            LDG.E.128 R40, desc[UR4][R2.64]
            LDG.E.128 R44, desc[UR4][R2.64]
            LDG.E.U8 R48, desc[UR4][R2.64]
            CALL.REL.NOINC 0x4000
            INNER:
            LDG.E.128 R4, desc[UR4][R2.64]
            FADD R20, R20, R4
            @P0 BRA INNER
            @P1 BRA OUTER
            EXIT""")
        self.assertEqual(found, {"ahead": 1, "narrow": 0, "slow": 0,
                                 "local": 0})

    def test_narrow_accesses_divisions_and_local_memory(self):
        found = figures("""
            STL [R1+0x4], R9
            HEAD:
            LDG.E.128 R4, desc[UR4][R2.64]
            LDG.E.U8 R8, desc[UR4][R2.64]
            STG.E.U16 desc[UR4][R2.64], R9
            STG.E.128 desc[UR4][R2.64], R4
            I2F.U32.RP R9, R10
            I2F.S32 R9, R10
            CALL.REL.NOINC 0x4000
            LDL R9, [R1]
            @P0 BRA HEAD
            LDG.E.S8 R8, desc[UR4][R2.64]
            EXIT""")
        self.assertEqual(found, {"ahead": 1, "narrow": 2, "slow": 2,
                                 "local": 2})


LIMITS = """
# A comment.
[ops/some.cu]
Kernel<float, true>   64 2 1 0   # why
"""


class Table(unittest.TestCase):
    def faults(self, **changed):
        ((_, kernel, limits),) = sass_check.limits_of(LIMITS)
        found = dict(registers=64, ahead=2, narrow=1, slow=0, local=0)
        return sass_check.faults_of(kernel, limits, found | changed)

    def test_limits_are_kept_or_bettered(self):
        self.assertEqual(self.faults(), [])
        self.assertEqual(self.faults(registers=40, ahead=4, narrow=0), [])

    def test_whatever_gets_worse_is_said(self):
        for changed in (dict(registers=65), dict(ahead=1), dict(narrow=2),
                        dict(slow=1), dict(local=4)):
            (fault,) = self.faults(**changed)
            self.assertTrue(fault.startswith("Kernel<float, true>: "), fault)

    def test_a_kernel_that_is_gone_is_a_fault(self):
        ((_, kernel, limits),) = sass_check.limits_of(LIMITS)
        self.assertEqual(len(sass_check.faults_of(kernel, limits, None)), 1)

    def test_rows_that_are_none(self):
        for text in ("Kernel 1 2 3 4", "[a]\nKernel 1 2 3", "[a]\nKernel x 1 2 3"):
            with self.assertRaises(ValueError):
                sass_check.limits_of(text)

    def test_names_are_short(self):
        for full, short in (
                ("void sluice::cuda::(anonymous namespace)::GradKernel<__half, "
                 "true>(sluice::cuda::BatchNormShape, __half*)",
                 "GradKernel<__half, true>"),
                ("void sluice::cuda::UnaryKernel<sluice::scalar::Relu, float>"
                 "(float const*)", "UnaryKernel<scalar::Relu, float>"),
                ("sluice::cuda::(anonymous namespace)::AllFiniteKernel("
                 "sluice::cuda::ArrayList, bool*)", "AllFiniteKernel")):
            self.assertEqual(sass_check.short_name(full), short)

    def test_usage_belongs_to_its_kernel(self):
        usage = """ Function a:
  REG:64 STACK:8 SHARED:1024 LOCAL:16 CONSTANT[0]:650 TEXTURE:0
 Function b:
  REG:20 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:650 TEXTURE:0"""
        code = "HEAD:\nLDG.E.128 R4, desc[UR4][R2.64]\n@P0 BRA HEAD\nEXIT"
        kernels = sass_check.kernels_of(
            "some.o", sass(code, "a") + "\n" + sass(code, "b"), usage,
            lambda names: names)
        self.assertEqual([kernels[k]["registers"] for k in "ab"], [64, 20])
        self.assertEqual([kernels[k]["local"] for k in "ab"], [24, 0])
        with self.assertRaises(ValueError):
            sass_check.kernels_of("some.o", sass(code, "c"), usage,
                                  lambda names: names)


if __name__ == "__main__":
    unittest.main()
