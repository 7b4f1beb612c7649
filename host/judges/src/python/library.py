# Imports modules from memory: their sources come once, on the standard input.
def _library():
    import importlib.abc
    import importlib.machinery
    import importlib.metadata
    import importlib.util

    data = bytearray()
    while part := _posix.read(0, 1 << 20):
        data += part
    sources, at = {}, 0
    while at < len(data):
        end = data.index(b"\n", at)
        length, path = bytes(data[at:end]).decode().split(" ", 1)
        at = end + 1 + int(length)
        sources[path] = bytes(data[end + 1 : at])
    del data

    class Importer(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
        def find_spec(self, name, path=None, target=None):
            place = name.replace(".", "/")
            for file, package in ((place + "/__init__.py", True), (place + ".py", False)):
                if file in sources:
                    spec = importlib.machinery.ModuleSpec(name, self, origin=file, is_package=package)
                    spec.loader_state = file
                    return spec
            if any(file.startswith(place + "/") for file in sources):
                return importlib.machinery.ModuleSpec(name, None, is_package=True)
            return None

        def exec_module(self, module):
            file = module.__spec__.loader_state
            # What is imported once is not asked for again.
            code = compile(sources.pop(file), file, "exec", dont_inherit=True)
            exec(code, module.__dict__)

        def get_source(self, name):
            return None

        def find_distributions(self, context=importlib.metadata.DistributionFinder.Context()):
            wanted = (context.name or "").replace("-", "_").lower()
            for path in list(sources):
                folder, _, file = path.partition("/")
                if file == "METADATA" and folder.split("-")[0].lower() == wanted:
                    yield Distribution(path)

    class Distribution(importlib.metadata.Distribution):
        def __init__(self, path):
            self.path = path

        def read_text(self, filename):
            return sources[self.path].decode() if filename == "METADATA" else None

        def locate_file(self, path):
            return path

    sys.meta_path.append(Importer())


_library()
del _library
