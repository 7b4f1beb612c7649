# math-verify, imported, and two calls for one answer.
def _setup():
    import gc
    import logging
    import types

    logging.disable(logging.WARNING)
    # Sympy asks for the size of a C long, which decides nothing here, and gets that of most machines.
    sys.modules["ctypes"] = types.ModuleType("ctypes")
    sys.modules["ctypes"].__dict__.update(c_long=None, sizeof=lambda _: 8)
    judge = types.ModuleType("allot_math_verify")
    exec(compile(JUDGE, "math_verify.py", "exec"), judge.__dict__)

    def gold(golds):
        _math.read = judge.read(golds)

    def answer(text):
        correct = judge.judge(_math.read, text)
        sys.stdout.flush()
        say = "\ntrue\n" if correct else "\nfalse\n"
        _posix.write(1, say.encode())

    # Modules that are imported at a first call, and tables that are made there.
    for one in WARM:
        try:
            judge.judge(judge.read([one]), "So it is $" + one + "$, or \\boxed{" + one + "}.")
            judge.judge(judge.read([one]), "\\boxed{7}")
        except Exception:
            pass
    sys.path_importer_cache.clear()
    gc.collect()
    # No collection looks at what is there already.
    gc.freeze()
    return types.SimpleNamespace(gold=gold, answer=answer)


WARM = ["5", "-1/2", "0.25", "\\frac{3}{4}", "2\\sqrt{3}", "x^2+2x+1", "(1,2)", "[0,1)", "\\{1,2,3\\}", "x=3",
        "\\pi", "50\\%", "\\text{B}", "x \\leq 4", "\\begin{pmatrix}1\\\\2\\end{pmatrix}", "(-\\infty,2]\\cup[3,4]",
        "3!", "\\binom{5}{2}", "e^{2x}", "\\sin x", "\\log_2 8", "1,000", "i+1", "\\int_0^1 x dx"]
_math = _setup()
del _setup, WARM
