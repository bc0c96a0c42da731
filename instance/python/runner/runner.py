"""The process that runs a function's Python beside its instance.

    runner.py serve             answers batches on the inherited descriptors
    runner.py warm SOCKET [MODULE...]
                                imports modules and forks such processes

Messages are JSON after its length in four bytes, little endian. Tensors are in two
shared memory files, one for what comes and one for what goes, at the offsets that
the messages tell. Package python, which starts this, describes both.
"""
import ctypes
import fcntl
import gc
import importlib
import importlib.util
import inspect
import json
import math
import mmap
import os
import random
import resource
import select
import signal
import socket
import struct
import sys
import time
import traceback

CONTROL, LIFE, INPUTS, OUTPUTS = 3, 4, 5, 6
DTYPES = {
    "BOOL": "bool", "UINT8": "uint8", "INT8": "int8", "INT16": "int16", "UINT16": "uint16",
    "INT32": "int32", "UINT32": "uint32", "INT64": "int64", "UINT64": "uint64",
    "FP16": "float16", "FP32": "float32", "FP64": "float64", "BYTES": "object",
}
LIBC = ctypes.CDLL(None, use_errno=True)
NAMES = {numpy: name for name, numpy in DTYPES.items()}
ALIGN = 64
LENGTH = struct.Struct("<I")  # before each string


class Wrong(Exception):
    """What the author of the function did wrong, in a sentence."""


limit = 0  # what the process may hold in bytes, 0 for no limit


def explain(error):
    """One line for who asked: a traceback's last."""
    if isinstance(error, Wrong):
        return str(error)
    line = traceback.format_exception_only(error)[-1].strip().splitlines()[0]
    if at_fault(error):  # TensorFlow's first lines tell where it happened, and not what.
        said = [t.strip() for t in str(error.message).splitlines()]
        said = [t for t in said if t and not t.startswith(("Graph execution error", "Detected at", "<stack traces", "[["))]
        line = f"the model cannot compute with these inputs: {said[-1]}" if said else line
    if isinstance(error, MemoryError) and limit:
        line += f": it ran out of memory (limit {limit >> 20} MiB)"
    return line


def at_fault(error):
    """Whether TensorFlow says that an error is due to the inputs, as an index outside a table."""
    return type(error).__name__ == "InvalidArgumentError" and hasattr(error, "message")


class Strings:
    """An array of strings as it is sent: each after its length."""

    dtype = None

    def __init__(self, name, array):
        parts = []
        for s in array.flat:
            if isinstance(s, str):
                s = s.encode(errors="surrogateescape")
            elif not isinstance(s, (bytes, bytearray)):
                raise Wrong(f"{name!r} has {type(s).__name__} among its strings; each must be str or bytes")
            parts += LENGTH.pack(len(s)), s
        self.shape, self.data = array.shape, b"".join(parts)
        self.nbytes, self.ndim = len(self.data), array.ndim

    def __len__(self):
        return self.shape[0]


def sendable(name, array):
    """An array as it is sent."""
    return Strings(name, array) if array.dtype.kind in "OSU" else array


def read_strings(shape, data):
    """An array of bytes objects of strings as they are sent."""
    import numpy as np

    found, at = np.empty(math.prod(shape), object), 0
    for i in range(len(found)):
        size, = LENGTH.unpack_from(data, at)
        at += LENGTH.size
        found[i] = bytes(data[at:at + size])
        at += size
    return found.reshape(shape)


# What libraries reserve and do not use, as threads' stacks, in bytes.
RESERVED = 256 << 20


def bound():
    """Has an allocation fail that is far more than what is left of the limit.

    It is one request's error then. What grows step by step gets to the limit itself,
    at which the instance or the kernel ends the process.
    """
    if not limit:
        return
    with open("/proc/self/status") as file:
        kib = {line.split(":")[0]: int(line.split()[1]) for line in file if line.startswith(("VmData:", "VmRSS:"))}
    most = (kib["VmData"] << 10) + max(0, limit - (kib["VmRSS"] << 10)) + RESERVED
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def encode(message):
    """A message as it is sent."""
    body = json.dumps(message).encode()
    return struct.pack("<I", len(body)) + body


class Channel:
    """Messages over a socket."""

    def __init__(self, sock):
        self.sock = sock

    def read(self):
        head = self.exactly(4)
        if head is None:
            return None
        body = self.exactly(struct.unpack("<I", head)[0])
        return None if body is None else json.loads(body)

    def exactly(self, size):
        got = bytearray()
        while len(got) < size:
            part = self.sock.recv(size - len(got))
            if not part:
                return None
            got += part
        return bytes(got)

    def write(self, message):
        self.send(encode(message))

    def send(self, encoded):
        self.sock.sendall(encoded)


class Memory:
    """A shared memory file, mapped as far as it was needed so far."""

    def __init__(self, fd):
        self.fd, self.size, self.map = fd, 0, None

    def reach(self, size, grow=False):
        if size <= self.size:
            return self.map
        have = os.fstat(self.fd).st_size
        if have < size:
            if not grow:
                raise ValueError("the shared memory is smaller than the message says")
            os.ftruncate(self.fd, max(size, 2 * have))
            have = os.fstat(self.fd).st_size
        # Arrays of an earlier mapping keep it alive by themselves.
        self.map, self.size = mmap.mmap(self.fd, have), have
        return self.map


def keep_memory():
    """Has the C library give what was freed to who asks next, rather than to the kernel.

    Fresh pages cost a fault each: arrays of some MiB that come and go with every batch
    would spend most of their time so. A part of what the process may have is kept.
    """
    kept = min(limit // 8, 64 << 20) if limit else 64 << 20
    LIBC.mallopt(-1, kept)  # M_TRIM_THRESHOLD
    LIBC.mallopt(-3, min(kept, 32 << 20))  # M_MMAP_THRESHOLD, and the largest that it takes


names_of = {}


def name_of(dtype):
    """A dtype's name, which NumPy puts together each time that it is asked; None is that of strings."""
    if dtype is None:
        return "object"
    if dtype not in names_of:
        names_of[dtype] = dtype.name
    return names_of[dtype]


def info(name, dtype, shape):
    """A tensor's description; its first dimension is the batch."""
    numpy = getattr(dtype, "name", None) or str(dtype)
    if numpy.startswith(("str", "bytes")):  # NumPy's have their length in the name.
        numpy = "object"
    if numpy not in NAMES:
        raise Wrong(f"{name!r} has the type {numpy}; known are {', '.join(NAMES)}")
    return {"name": name, "datatype": NAMES[numpy], "shape": [-1] + [-1 if d is None else int(d) for d in shape]}


def declared(module, what):
    """The handler's inputs or outputs: {"x": ("float32", [4])}, the shape that of one row."""
    import numpy as np

    table = getattr(module, what, None)
    if table is None:
        return None
    try:
        return [info(name, np.dtype("object" if dtype == "string" else dtype), shape) for name, (dtype, shape) in dict(table).items()]
    except Wrong:
        raise
    except Exception as error:
        raise Wrong(f"the handler's {what} is {table!r}; write it as {what} = {{\"x\": (\"float32\", [4])}}, "
                    "the shape being that of one row") from error


def of_specs(specs):
    """The same of TensorFlow's specs by name."""
    found = []
    for name, spec in specs.items():
        if spec.shape.rank is None or spec.shape.rank == 0:
            raise Wrong(f"{name!r} of the model has no batch dimension: its shape is {spec.shape}")
        if spec.shape[0] is not None:
            raise Wrong(f"{name!r} of the model has a fixed batch of {spec.shape[0]}: save it with None as the first dimension")
        found.append(info(name, spec.dtype, spec.shape[1:]))
    return found


class TensorFlow:
    """A SavedModel or a Keras file by its default signature."""

    requests = parts = False

    def __init__(self, path):
        import tensorflow as tf

        self.tf = tf
        self.function = self.saved(path) if os.path.isdir(path) else self.keras(path)
        self.inputs = of_specs(self.function.structured_input_signature[1])
        self.outputs = of_specs(self.function.structured_outputs)

    def saved(self, path):
        self.model = self.tf.saved_model.load(path)
        signatures = dict(self.model.signatures)
        if "serving_default" in signatures:
            return signatures["serving_default"]
        if len(signatures) == 1:
            return next(iter(signatures.values()))
        if not signatures:
            raise Wrong("the SavedModel has no signature; write it with model.export(), with "
                        "tf.saved_model.save(..., signatures=...), or add a handler that calls it")
        raise Wrong(f"the SavedModel has the signatures {', '.join(signatures)} and none named serving_default")

    def keras(self, path):
        import keras

        self.model = model = keras.models.load_model(path, compile=False, safe_mode=True)
        tf = self.tf
        specs = {t.name: tf.TensorSpec([None, *t.shape[1:]], t.dtype, name=t.name) for t in model.inputs}
        names = getattr(model, "output_names", None) or [model.layers[-1].name]

        def call(**inputs):
            found = model([inputs[t.name] for t in model.inputs] if len(specs) > 1 else next(iter(inputs.values())), training=False)
            if isinstance(found, dict):
                return found
            return dict(zip(names, found if isinstance(found, (list, tuple)) else [found]))

        return tf.function(call).get_concrete_function(**specs)

    def run(self, arrays):
        found = self.function(**{name: self.tf.constant(a) for name, a in arrays.items()})
        return {name: sendable(name, t.numpy()) for name, t in found.items()}


class Handler:
    """A handler file: load(path) once, handle(batch) for every batch.

    If handle yields, each list that it yields has the next part of each request's answer, or None.
    """

    requests = True

    def __init__(self, file, path):
        sys.path.insert(0, os.path.dirname(file))
        spec = importlib.util.spec_from_file_location("handler", file)
        module = importlib.util.module_from_spec(spec)
        sys.modules["handler"] = module
        spec.loader.exec_module(module)
        self.name = os.path.basename(file)
        self.handle = getattr(module, "handle", None)
        if not callable(self.handle):
            raise Wrong(f"{self.name} has no function handle(batch)")
        model = module.load(path) if hasattr(module, "load") else None
        self.inputs = declared(module, "inputs") or self.of_model(model)
        self.parts = inspect.isgeneratorfunction(self.handle)
        self.outputs = declared(module, "outputs") or (None if self.parts else self.learn())
        if self.parts and (not self.outputs or any(len(o["shape"]) < 2 or o["shape"][1] != -1 for o in self.outputs)):
            raise Wrong(f"handle in {self.name} yields parts, which are joined along the first axis of a row: tell the outputs, "
                        "and give that axis no size, as in outputs = {\"y\": (\"float32\", [None])}")

    def of_model(self, model):
        signatures = dict(getattr(model, "signatures", None) or {})
        if "serving_default" in signatures:
            return of_specs(signatures["serving_default"].structured_input_signature[1])
        if getattr(model, "inputs", None) and hasattr(model, "predict_step"):
            return [info(t.name, t.dtype, t.shape[1:]) for t in model.inputs]
        raise Wrong(f"{self.name} does not tell its inputs: write inputs = {{\"x\": (\"float32\", [4])}} in it, "
                    "the shape being that of one row, or return the model from load if it is TensorFlow's")

    def learn(self):
        """What handle gives for a row of zeros, where the handler does not say."""
        import numpy as np

        row = {i["name"]: np.full([1] + [max(1, d) for d in i["shape"][1:]], b"" if i["datatype"] == "BYTES" else 0, DTYPES[i["datatype"]])
               for i in self.inputs}
        try:
            self.outputs = None
            found = self.run([row])[0]
        except Exception as error:
            traceback.print_exc()
            raise Wrong(f"{self.name} does not tell its outputs, and handle fails for a row of zeros ({explain(error)}): "
                        "write outputs = {\"y\": (\"float32\", [1])} in it") from error
        if isinstance(found, Exception):
            raise Wrong(f"{self.name} does not tell its outputs, and handle gives {explain(found)} for a row of zeros")
        return [info(name, name_of(a.dtype), a.shape[1:]) for name, a in found.items()]

    def run(self, batch):
        """One answer for each request: its outputs by name, or an error."""
        answers = self.handle(batch)
        self.expect(batch, answers)
        return [self.answer(request, a) for request, a in zip(batch, answers)]

    def expect(self, batch, answers):
        """Refuses what is not one answer, or part of one, for each request."""
        if not isinstance(answers, (list, tuple)) and not hasattr(answers, "shape"):
            raise Wrong(f"handle gave {type(answers).__name__} for a batch of {len(batch)}; it must be a list of {len(batch)}")
        if len(answers) != len(batch):
            raise Wrong(f"handle gave {len(answers)} answers for a batch of {len(batch)}")

    def steps(self, batch, takers, emit):
        """The answers of a handler that yields.

        Those in takers get their parts by emit, as they come, and nothing here; the others' parts are joined.
        emit returns who among them needs no more. The handler gets that, and whose answers it has just ended with an
        error, as the value of its yield.
        """
        joined, ended, begun = [[] for _ in batch], [None] * len(batch), set()
        given, gone = self.handle(batch), None
        while None in ended:
            try:
                parts = given.send(gone)
            except StopIteration:
                break
            self.expect(batch, parts)
            now, gone = [{} for _ in batch], []
            for at, part in enumerate(parts):
                if part is None or ended[at] is not None:
                    continue
                part = self.answer(batch[at], part, raw=at not in takers)
                if isinstance(part, Exception):
                    ended[at] = part
                    gone.append(at)
                elif at in takers:
                    now[at] = part
                    begun.add(at)
                else:
                    joined[at].append(part)
            left = emit(now) if any(now) else []
            for at in left:
                if ended[at] is None:
                    ended[at] = {}
                    gone.append(at)
        given.close()
        return [self.rest(ended[at], at in begun, joined[at]) for at in range(len(batch))]

    def rest(self, ended, begun, parts):
        """What is not sent yet of an answer: an error, nothing, or the whole of its parts."""
        import numpy as np

        if ended is not None or begun:
            return {} if ended is None else ended
        if not parts:
            return Wrong("handle yielded no part for this request")
        strings = {o["name"] for o in self.outputs if o["datatype"] == "BYTES"}
        try:
            whole = {name: np.concatenate([p[name] for p in parts], axis=1) for name in parts[0]}
            return {name: sendable(name, array) if name in strings else array for name, array in whole.items()}
        except Exception as error:
            return error

    def answer(self, request, given, raw=False):
        if isinstance(given, Exception):
            return given
        try:
            return self.checked(len(next(iter(request.values()))), given, raw)
        except Exception as error:
            return error

    def checked(self, rows, given, raw=False):
        import numpy as np

        if not isinstance(given, dict):
            if self.outputs and len(self.outputs) > 1:
                raise Wrong(f"handle gave {type(given).__name__} for a request; with {len(self.outputs)} outputs it must be a dict")
            given = {self.outputs[0]["name"] if self.outputs else "output": given}
        arrays, strings = {}, {o["name"] for o in self.outputs or [] if o["datatype"] == "BYTES"}
        for name in [o["name"] for o in self.outputs] if self.outputs else given:
            if name not in given:
                raise Wrong(f"handle gave no {name!r} for a request, but {', '.join(map(str, given)) or 'nothing'}")
            array = given[name]
            if name in strings and not hasattr(array, "dtype"):
                array = np.asarray(array, object)  # NumPy's own type would cut zero bytes off the end.
            array = np.asarray(array)
            if raw:  # A copy: the handler may write its next part to the same array.
                array = array.astype(object) if name in strings else array.copy()
            else:
                array = sendable(name, array) if name in strings or not self.outputs else array
            arrays[name] = array
            if array.ndim == 0 or len(array) != rows:
                raise Wrong(f"handle gave {name!r} with the shape {list(array.shape)} for a request of {rows} rows")
        for o in self.outputs or []:
            array = arrays[o["name"]]
            if name_of(array.dtype) != DTYPES[o["datatype"]]:
                raise Wrong(f"handle gave {o['name']!r} as {name_of(array.dtype)}, and it is {DTYPES[o['datatype']]}")
            if len(array.shape) != len(o["shape"]) or any(d >= 0 and d != s for d, s in zip(o["shape"][1:], array.shape[1:])):
                raise Wrong(f"handle gave {o['name']!r} with the shape {list(array.shape)}, and that of a row is {o['shape'][1:]}")
        return arrays


def limit_threads(threads):
    """Threads of libraries that a warm process has imported already, too."""
    if "tensorflow" in sys.modules:
        tf = sys.modules["tensorflow"]
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)


def load(config):
    if config["engine"] == "tensorflow":
        import tensorflow  # noqa: F401, before its threads are limited
    limit_threads(config["threads"])
    path = os.path.join(config["dir"], config["model"]) if config["model"] else config["dir"]
    if config["handler"]:
        subject = Handler(os.path.join(config["dir"], config["handler"]), path)
        if "torch" in sys.modules:  # The handler may just have imported it.
            sys.modules["torch"].set_num_threads(config["threads"])
        return subject
    return TensorFlow(path)


def aligned(size):
    return -(-size // ALIGN) * ALIGN


def room(size, taken):
    """Where so many bytes are free, beside the parts that are taken, by where they begin."""
    at = 0
    for begin, end in taken:
        if at + size <= begin:
            break
        at = max(at, aligned(end))
    return at


class Server:
    """Answers batches, one at a time."""

    def __init__(self, channel, inputs, outputs):
        self.channel, self.inputs, self.outputs = channel, Memory(inputs), Memory(outputs)
        self.pid = os.getpid()
        # How the latest answers lay and where, and the message that told it.
        self.lay = self.told = None

    def run(self):
        config = self.channel.read()
        if config is None:
            return
        began = time.monotonic()
        try:
            global limit
            limit = config["memory"]
            os.chdir(config["dir"])
            keep_memory()
            bound()
            self.subject = load(config)
            bound()
        except BaseException as error:
            traceback.print_exc()
            self.channel.write({"error": explain(error)})
            return
        self.channel.write({"inputs": self.subject.inputs, "outputs": self.subject.outputs,
                            "requests": self.subject.requests, "parts": self.subject.parts, "load_s": time.monotonic() - began})
        while (message := self.channel.read()) is not None:
            try:
                answer = self.batch(message)
            except Exception as error:
                traceback.print_exc()
                answer = encode({"error": explain(error), "inputs": at_fault(error)})
            self.channel.send(answer)
            self.given = None  # To free them takes a while, for which nobody has to wait.

    def batch(self, message):
        import numpy as np

        memory = self.inputs.reach(message["size"])
        arrays = {t["name"]: read_strings(t["shape"], memory[t["at"]:t["at"] + t["size"]]) if t["datatype"] == "BYTES"
                  else np.ndarray(t["shape"], DTYPES[t["datatype"]], memory, t["at"]) for t in message["inputs"]}
        if not self.subject.requests:
            self.given = [self.subject.run(arrays)]
            return self.put(self.given, message["taken"])
        batch, row = [], 0
        for rows in message["rows"]:
            batch.append({name: a[row:row + rows] for name, a in arrays.items()})
            row += rows
        if self.subject.parts:
            self.given = self.subject.steps(batch, set(message.get("parts") or ()), lambda parts: self.emit(parts, message["taken"]))
        else:
            self.given = self.subject.run(batch)
        self.check_fork()
        return self.put(self.given, message["taken"])

    def check_fork(self):
        if os.getpid() != self.pid:  # The handler has forked and came back twice. A second answer would be the next batch's.
            os._exit(0)

    def emit(self, parts, taken):
        """Sends parts of answers and waits until they are read. It returns who needs no more of them."""
        self.check_fork()
        self.channel.send(self.put(parts, taken, more=True))
        if (message := self.channel.read()) is None:
            os._exit(0)
        return message["gone"]

    def put(self, answers, taken, more=False):
        """Writes the answers' arrays into the memory for what goes, beside what is taken of it.

        It returns the message that tells where they are.
        """
        import numpy as np

        size, layout = 0, []
        for answer in answers:
            if isinstance(answer, Exception):
                traceback.print_exception(answer)
                layout.append(explain(answer))
                continue
            layout.append(tuple((name, array.dtype, array.shape, array.nbytes) for name, array in answer.items()))
            size += sum(aligned(array.nbytes) for array in answer.values())
        base = room(size, taken)
        # To see that answers lie as those before did takes a tenth of saying how they do.
        if (layout, base, more) != self.lay:
            self.told = encode({"answers": places(layout, base), "more": more})
            self.lay = layout, base, more
        memory, at = self.outputs.reach(max(base + size, 1), grow=True), base + size
        for answer in reversed(answers):  # What was written last may be in the processor's caches still.
            if isinstance(answer, Exception):
                continue
            for array in reversed(answer.values()):
                at -= aligned(array.nbytes)
                if isinstance(array, Strings):
                    memory[at:at + array.nbytes] = array.data
                else:
                    np.copyto(np.ndarray(array.shape, name_of(array.dtype), memory, at), array)
        return self.told


def places(layout, at):
    """Where answers' tensors are that lie one after another from there; an answer that is a string is an error."""
    found = []
    for answer in layout:
        if isinstance(answer, str):
            found.append({"error": answer})
            continue
        tensors = []
        for name, dtype, shape, size in answer:
            tensors.append({"name": name, "datatype": NAMES[name_of(dtype)], "shape": list(shape), "at": at, "size": size})
            at += aligned(size)
        found.append({"outputs": tensors})
    return found


def keep_own(channel, life, *memories):
    """Lets no process that the handler starts hold what tells the instance of this one's end, or answer for it."""
    for fd in (channel.sock.fileno(), life, *memories):
        os.set_inheritable(fd, False)
    held = [life]

    def close():
        channel.sock.close()
        while held:
            os.close(held.pop())

    os.register_at_fork(after_in_child=close)


def serve(control, life, inputs, outputs):
    # When the instance has gone, however it did, so has this: the kernel sees to it,
    # whatever the handler is doing.
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
    try:
        if os.read(life, 1) == b"":
            os._exit(0)
    except BlockingIOError:
        pass
    # The instance finishes what it has when it is told to end; this ends with it.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:  # Where memory is short, this goes, and not the instance.
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")
    except OSError:
        pass
    os.dup2(2, 1)  # What a handler prints is the log's.
    sys.stdout.reconfigure(line_buffering=True)
    channel = Channel(socket.socket(fileno=control))
    keep_own(channel, life, inputs, outputs)
    Server(channel, inputs, outputs).run()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def join_groups(pid):
    """Enters the control groups of a process."""
    def groups(of):
        with open(f"/proc/{of}/cgroup") as file:
            return dict(line.rstrip("\n").split(":", 2)[1:] for line in file)

    own, theirs = groups("self"), groups(pid)
    with open("/proc/self/mountinfo") as file:
        mounts = [line.split() for line in file]
    for controllers, path in theirs.items():
        if own.get(controllers) == path:
            continue
        for mount in mounts:
            kind = mount.index("-") + 1
            options = mount[kind + 2].split(",")
            if controllers == "" and mount[kind] == "cgroup2" or \
                    controllers and mount[kind] == "cgroup" and set(controllers.split(",")) <= set(options):
                below = os.path.relpath(path, mount[3])
                if below.startswith(".."):
                    continue
                with open(os.path.join(mount[4], below, "cgroup.procs"), "w") as file:
                    file.write("0")
                break
        else:
            raise Wrong(f"the control group {controllers}:{path} of the instance cannot be seen")


def join_mounts(pid):
    """Sees the file systems that a process sees: its secrets are its alone."""
    theirs = f"/proc/{pid}/ns/mnt"
    if os.readlink(theirs) == os.readlink("/proc/self/ns/mnt"):
        return
    with open(theirs) as file:
        if LIBC.setns(file.fileno(), 0) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), theirs)


def become(conn):
    """A process forked for an instance: what the instance is, this gets to be, too."""
    conn.settimeout(10)
    _, fds, _, _ = socket.recv_fds(conn, 1, 5)
    pid, uid, _ = struct.unpack("3i", conn.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    conn.close()
    if len(fds) != 5 or uid != os.geteuid():
        os._exit(1)
    log, control, life, inputs, outputs = fds
    os.dup2(log, 2)
    os.dup2(log, 1)
    os.close(log)
    channel = Channel(socket.socket(fileno=os.dup(control)))
    hello = channel.read()
    try:
        os.setsid()
        join_groups(pid)
        os.sched_setaffinity(0, os.sched_getaffinity(pid))
        join_mounts(pid)
    except Exception as error:
        channel.write({"error": explain(error), "refused": True})
        os._exit(1)
    os.environ.clear()
    os.environ.update(hello["env"])
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    serve(control, life, inputs, outputs)


def reap(children):
    """Tells those whose processes have ended how, and ends what these have left behind."""
    while children:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return
        try:
            os.killpg(ended.si_pid, signal.SIGKILL)
        except OSError:  # It led no group yet.
            pass
        pid, status = os.waitpid(ended.si_pid, 0)
        conn = children.pop(pid)
        try:
            conn.sendall(b"%d\n" % status)
        except OSError:
            pass
        conn.close()


def expand(names):
    """Modules in the place of distributions."""
    from importlib import metadata

    by = {}
    for module, distributions in metadata.packages_distributions().items():
        for d in distributions:
            by.setdefault(d.lower().replace("_", "-"), []).append(module)
    for name in names:
        if name.startswith("@"):
            yield from (m for m in by.get(name[1:].lower().replace("_", "-"), []) if m.isidentifier() and m[0] != "_")
        else:
            yield name


def warm(path, modules):
    """Imports the modules and forks a process for everyone who connects, until standard input ends.

    A name with @ before it is that of a distribution, and stands for its modules.
    """
    for name in expand(modules):
        try:
            importlib.import_module(name)
        except Exception:  # A handler that needs it will say so.
            traceback.print_exc()
    if (threads := len(os.listdir("/proc/self/task"))) > 1:
        sys.exit(f"importing {', '.join(modules)} started {threads - 1} threads; what is forked from such a process may hang")
    gc.collect()
    gc.freeze()  # Their pages stay shared.
    listener = socket.socket(socket.AF_UNIX)
    if os.path.exists(path):
        os.unlink(path)
    mask = os.umask(0o077)
    listener.bind(path)
    os.umask(mask)
    listener.listen(64)
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print("ready", flush=True)
    children = {}
    while True:
        ready, _, _ = select.select([listener, woken, 0], [], [])
        if 0 in ready and not os.read(0, 1):
            os.unlink(path)
            os._exit(0)
        if woken in ready:
            os.read(woken, 4096)
            reap(children)
        if listener not in ready:
            continue
        conn, _ = listener.accept()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for other in [listener, *children.values()]:
                other.close()
            for fd in (woken, wake):
                os.close(fd)
            try:
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                become(conn)
            finally:
                os._exit(1)
        children[pid] = conn
        try:
            conn.sendall(b"%d\n" % pid)
        except OSError:
            pass


if __name__ == "__main__":
    if sys.path and sys.path[0].startswith("/dev/fd"):
        sys.path.pop(0)
    if sys.argv[1] == "warm":
        warm(sys.argv[2], sys.argv[3:])
    else:
        serve(CONTROL, LIFE, INPUTS, OUTPUTS)
