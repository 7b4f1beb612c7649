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

    # Modules that are imported at a first call, and tables that are made there: above all the parser's, which learns
    # what may follow what. Each form is read, compared with itself, and with the next one.
    for one, next in zip(WARM, [*WARM[1:], "5"]):
        for text in (f"So it is ${one}$.", f"\\boxed{{{one}}}", f"\\boxed{{{next}}}", next):
            try:
                judge.judge(judge.read([one]), text)
            except Exception:
                pass
    sys.path_importer_cache.clear()
    gc.collect()
    # No collection looks at what is there already.
    gc.freeze()
    return types.SimpleNamespace(gold=gold, answer=answer)


# What answers look like.
WARM = r"""
5 -7 12 1,000 0.25 3.1416 -1/2 \frac{3}{4} -\frac{5}{12} \tfrac12 2\frac{1}{3} \sqrt{5} 2\sqrt{3}
\frac{\sqrt{3}}{2} \frac{1+\sqrt{5}}{2} \sqrt[3]{2} 3+2\sqrt{2} 2^{10} 10^{-3} 6.5\times10^{4} 50\%
\$12.50 90^\circ \pi \frac{\pi}{3} 4\pi+2 \infty -\infty e e^{2} 3! \binom{5}{2} |x| i 2+3i x y+1
2x-3 x^2+1 x^2+2x+1 (x+1)^2 (x-1)(x+2) 4t-3 n^{2}-n+1 \frac{x+1}{x-1} \frac{1}{x^2+1} ax^2+bx+c
x^{n} a_n a_{1}+a_{2} \sqrt{x+1} e^{2x} \sin(x) \cos{2x} \sin^2x \tan\theta \log_{2}8 \ln(x) \ln2
\frac{d}{2} xyz k\pi x=3 y=2x+1 x\neq5 x<4 x\leq4 x>0 1<x<5 -2\leqx\leq2 x=1,y=2 r=1+\sqrt{2} (1,2)
(1,2,3) (-3,\frac{1}{2}) [0,1) (-\infty,2] (2,\infty) (-\infty,2]\cup[3,4] (0,1)\cup(1,2) \{1,2,3\}
\{-1,1\} 1,2,3 (1,2),(3,4) \{(1,2),(3,4)\} \begin{pmatrix}1\\2\end{pmatrix}
\begin{pmatrix}1&0\\0&1\end{pmatrix} \int_0^1x\,dx \sum_{i=1}^{n}i \text{B} \text{even}
\overline{0.3} 12\text{cm} \emptyset x\in[0,1] \mathbb{R}
""".split()
_math = _setup()
del _setup, WARM
