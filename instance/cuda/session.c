#define _GNU_SOURCE
#include "session.h"
#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ORT calls the function at a place of the table. Most return a status, NULL if it worked.
#define ORT(place, ...) ((void *(*)(__VA_ARGS__))api[ort_##place])
#define TRY(call)                       \
	do {                            \
		char *failure_ = (call); \
		if (failure_) return failure_; \
	} while (0)
#define CU(name, call) TRY(driver_failed(name, call))
#define OK(name, call) TRY(ort_failed(name, call))

static void **api;

static char *say(const char *call, const char *text) {
	char *message = NULL;
	if (asprintf(&message, "%s: %s", call, text) < 0) return strdup(call);
	return message;
}

static char *ort_failed(const char *call, void *status) {
	if (!status) return NULL;
	char *message = say(call, ((const char *(*)(void *))api[ort_GetErrorMessage])(status));
	ORT(ReleaseStatus, void *)(status);
	return message;
}

char *library_load(const char *path) {
	return dlopen(path, RTLD_LAZY | RTLD_GLOBAL) ? NULL : say("dlopen", dlerror());
}

// host_trim gives the memory that loading has freed back to the kernel, of all threads' arenas.
void host_trim(void) { malloc_trim(0); }

char *ort_load(const char *path, char **version) {
	if (api) return NULL;
	// Without a fixed threshold, glibc soon takes weights of up to 32 MB from its heaps, where they
	// leave holes.
	mallopt(M_MMAP_THRESHOLD, 1 << 20);
	void *opened = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	if (!opened) return say("dlopen", dlerror());
	typedef struct {
		void **(*get)(uint32_t);
		const char *(*version)(void);
	} base;
	base *(*get)(void) = (base * (*)(void)) dlsym(opened, "OrtGetApiBase");
	if (!get) return say("dlsym", "the library has no OrtGetApiBase");
	*version = strdup(get()->version());
	if (!(api = get()->get(ort_version))) return say("OrtGetApiBase", "the library is too old");
	return NULL;
}

char *device_open(int *version) {
	int device;
	CU("cuInit", cu.init(0));
	CU("cuDriverGetVersion", cu.version(version));
	CU("cuDeviceGet", cu.device(&device, 0));
	return NULL;
}

char *device_describe(int device, char *name, int length, unsigned char *uuid, size_t *total) {
	CU("cuDeviceGetName", cu.name(name, length, device));
	CU("cuDeviceGetUuid", cu.uuid(uuid, device));
	CU("cuDeviceTotalMem", cu.total(total, device));
	return NULL;
}

char *device_attribute(int device, int attribute, int *value) {
	CU("cuDeviceGetAttribute", cu.attribute(value, attribute, device));
	return NULL;
}

// device_context makes the primary context, which CUDA's libraries share. A thread that waits
// for the device sleeps (flag 4, CU_CTX_SCHED_BLOCKING_SYNC).
char *device_context(engine *e) {
	int set = cu.flags(0, 4);
	if (set != 708) CU("cuDevicePrimaryCtxSetFlags", set); // 708: the context exists already.
	CU("cuDevicePrimaryCtxRetain", cu.retain(&e->context, 0));
	// The process keeps the context: making it again takes 130 ms, and loads all kernels again.
	static int kept;
	if (!__atomic_exchange_n(&kept, 1, __ATOMIC_SEQ_CST)) CU("cuDevicePrimaryCtxRetain", cu.retain(&e->context, 0));
	CU("cuCtxSetCurrent", cu.current(e->context));
	return NULL;
}

// stream_open makes a stream that does not wait for the default one (flag 1), and events
// whose waiters sleep (flag 1, CU_EVENT_BLOCKING_SYNC).
char *stream_open(engine *e, session *s) {
	CU("cuCtxSetCurrent", cu.current(e->context));
	CU("cuStreamCreate", cu.stream(&s->stream, 1));
	for (int i = 0; i < 4; i++) CU("cuEventCreate", cu.event(&s->at[i], 1));
	return NULL;
}

char *device_memory(engine *e, size_t *free, size_t *total) {
	CU("cuCtxSetCurrent", cu.current(e->context));
	CU("cuMemGetInfo", cu.free_memory(free, total));
	return NULL;
}

char *device_reserve(engine *e, size_t bytes, address *to) {
	CU("cuCtxSetCurrent", cu.current(e->context));
	CU("cuMemAlloc", cu.allocate(to, bytes));
	return NULL;
}

char *host_reserve(engine *e, size_t bytes, void **to) {
	CU("cuCtxSetCurrent", cu.current(e->context));
	CU("cuMemHostAlloc", cu.pin(to, bytes, 0));
	memset(*to, 0, bytes);
	return NULL;
}

void device_release(engine *e, address at) {
	if (at && !cu.current(e->context)) cu.free(at);
}

void host_release(engine *e, void *at) {
	if (at && !cu.current(e->context)) cu.unpin(at);
}

// engine_open makes what sessions share. memory is the name of the device's.
char *engine_open(engine *e, const char *memory) {
	OK("CreateEnv", ORT(CreateEnv, int, const char *, void **)(3, "faas-infer", &e->env));
	OK("DisableTelemetryEvents", ORT(DisableTelemetryEvents, const void *)(e->env));
	// The process keeps the environment, whose end would unload the provider.
	static int kept;
	if (!__atomic_exchange_n(&kept, 1, __ATOMIC_SEQ_CST)) OK("CreateEnv", ORT(CreateEnv, int, const char *, void **)(3, "faas-infer", &e->env));
	OK("CreateRunOptions", ORT(CreateRunOptions, void **)(&e->run));
	// We wait for the stream ourselves, after the copy of the outputs.
	OK("AddRunConfigEntry", ORT(AddRunConfigEntry, void *, const char *, const char *)(e->run, "disable_synchronize_execution_providers", "1"));
	OK("CreateMemoryInfo", ORT(CreateMemoryInfo, const char *, int, int, int, void **)(memory, 0, 0, 0, &e->memory));
	OK("CreateCpuMemoryInfo", ORT(CreateCpuMemoryInfo, int, int, void **)(0, 0, &e->host));
	return NULL;
}

void engine_close(engine *e) {
	if (e->run) ORT(ReleaseRunOptions, void *)(e->run);
	if (e->host) ORT(ReleaseMemoryInfo, void *)(e->host);
	if (e->memory) ORT(ReleaseMemoryInfo, void *)(e->memory);
	if (e->env) ORT(ReleaseEnv, void *)(e->env);
	if (e->context && !cu.current(e->context)) cu.release(0);
	memset(e, 0, sizeof *e);
}

// session_provide makes a session's options with the CUDA provider, which loads CUDA's
// libraries. It computes on the session's stream.
char *session_provide(session *s, const char **keys, const char **values, size_t count) {
	if (s->options) ORT(ReleaseSessionOptions, void *)(s->options);
	s->options = NULL;
	OK("CreateSessionOptions", ORT(CreateSessionOptions, void **)(&s->options));
	OK("SetSessionLogSeverityLevel", ORT(SetSessionLogSeverityLevel, void *, int)(s->options, 3));
	// The arena would keep the copies of the weights that go to the device.
	OK("DisableCpuMemArena", ORT(DisableCpuMemArena, void *)(s->options));
	OK("SetIntraOpNumThreads", ORT(SetIntraOpNumThreads, void *, int)(s->options, 1));
	OK("SetInterOpNumThreads", ORT(SetInterOpNumThreads, void *, int)(s->options, 1));
	OK("AddSessionConfigEntry", ORT(AddSessionConfigEntry, void *, const char *, const char *)(s->options, "session.intra_op.allow_spinning", "0"));
	if (!count) return NULL;
	void *provider = NULL;
	OK("CreateCUDAProviderOptions", ORT(CreateCUDAProviderOptions, void **)(&provider));
	char *failure = ort_failed("UpdateCUDAProviderOptions",
		ORT(UpdateCUDAProviderOptions, void *, const char **, const char **, size_t)(provider, keys, values, count));
	// The update above resets the stream, so it comes second.
	if (!failure) failure = ort_failed("UpdateCUDAProviderOptionsWithValue user_compute_stream",
		ORT(UpdateCUDAProviderOptionsWithValue, void *, const char *, void *)(provider, "user_compute_stream", s->stream));
	if (!failure) failure = ort_failed("SessionOptionsAppendExecutionProvider_CUDA_V2",
		ORT(SessionOptionsAppendExecutionProvider_CUDA_V2, void *, void *)(s->options, provider));
	ORT(ReleaseCUDAProviderOptions, void *)(provider);
	return failure;
}

// session_use lets a session that is opened later read a weight at value, if it needs it in that
// memory. The value must outlive the session.
char *session_use(session *s, const char *name, void *value) {
	OK("AddInitializer", ORT(AddInitializer, void *, const char *, const void *)(s->options, name, value));
	return NULL;
}

// session_open loads a model. An optimised one is loaded as it is. keep is the file to which the
// optimised model is written, NULL for none; its weights go into weights.bin beside it, from
// where they are mapped.
char *session_open(engine *e, session *s, const char *model, int optimised, const char *keep) {
	char *(*set)(void *, const char *, const char *) = api[ort_AddSessionConfigEntry];
	OK("SetSessionGraphOptimizationLevel", ORT(SetSessionGraphOptimizationLevel, void *, int)(s->options, optimised ? 0 : 99));
	OK("SetOptimizedModelFilePath", ORT(SetOptimizedModelFilePath, void *, const char *)(s->options, keep ? keep : ""));
	if (keep) {
		OK("AddSessionConfigEntry", set(s->options, "session.optimized_model_external_initializers_file_name", "weights.bin"));
		OK("AddSessionConfigEntry", set(s->options, "session.optimized_model_external_initializers_min_size_in_bytes", "1024"));
	}
	OK("CreateSession", ORT(CreateSession, void *, const char *, void *, void **)(e->env, model, s->options, &s->session));
	return NULL;
}

// session_used gives the bytes that the session's arena took of the device's memory.
char *session_used(engine *e, session *s, int64_t *bytes) {
	void *allocator = NULL, *stats = NULL;
	const char *total;
	OK("CreateAllocator", ORT(CreateAllocator, void *, void *, void **)(s->session, e->memory, &allocator));
	char *failure = ort_failed("AllocatorGetStats", ORT(AllocatorGetStats, void *, void **)(allocator, &stats));
	if (!failure) {
		total = ((const char *(*)(void *, const char *))api[ort_GetKeyValue])(stats, "TotalAllocated");
		if (total)
			*bytes = strtoll(total, NULL, 10);
		else
			failure = say("AllocatorGetStats", "there is no TotalAllocated");
		((void (*)(void *))api[ort_ReleaseKeyValuePairs])(stats);
	}
	((void (*)(void *))api[ort_ReleaseAllocator])(allocator);
	return failure;
}

size_t session_ports(session *s, int output) {
	size_t n = 0;
	char *failure = output ? ort_failed("", ORT(SessionGetOutputCount, void *, size_t *)(s->session, &n))
			       : ort_failed("", ORT(SessionGetInputCount, void *, size_t *)(s->session, &n));
	free(failure);
	return n;
}

// session_places says which inputs the session reads in the host's memory.
char *session_places(session *s, int *on_host, size_t inputs) {
	const void **memory = calloc(inputs, sizeof *memory);
	char *failure = ort_failed("SessionGetMemoryInfoForInputs",
		ORT(SessionGetMemoryInfoForInputs, void *, const void **, size_t)(s->session, memory, inputs));
	for (size_t i = 0; i < inputs && !failure; i++) {
		int device = 0;
		((void (*)(const void *, int *))api[ort_MemoryInfoGetDeviceType])(memory[i], &device);
		on_host[i] = device == 0;
	}
	free(memory);
	return failure;
}

static char *shape_of(void *info, port *to) {
	OK("GetTensorElementType", ORT(GetTensorElementType, const void *, int *)(info, &to->type));
	OK("GetDimensionsCount", ORT(GetDimensionsCount, const void *, size_t *)(info, &to->dimensions));
	if (to->dimensions > max_dimensions) return say("GetDimensionsCount", "the tensor has more than 16 dimensions");
	OK("GetDimensions", ORT(GetDimensions, const void *, int64_t *, size_t)(info, to->shape, to->dimensions));
	return NULL;
}

// session_port describes an input or output. type stays 0 if it is no tensor. The caller frees
// the name.
char *session_port(session *s, int output, size_t index, port *to) {
	void *allocator, *type, *info = NULL;
	char *name;
	OK("GetAllocatorWithDefaultOptions", ORT(GetAllocatorWithDefaultOptions, void **)(&allocator));
	void *(*get_name)(void *, size_t, void *, char **) = api[output ? ort_SessionGetOutputName : ort_SessionGetInputName];
	void *(*get_type)(void *, size_t, void **) = api[output ? ort_SessionGetOutputTypeInfo : ort_SessionGetInputTypeInfo];
	OK("SessionGetInputName", get_name(s->session, index, allocator, &name));
	to->name = strdup(name);
	OK("AllocatorFree", ORT(AllocatorFree, void *, void *)(allocator, name));
	OK("SessionGetInputTypeInfo", get_type(s->session, index, &type));
	// The information about the tensor belongs to the type.
	char *failure = ort_failed("CastTypeInfoToTensorInfo", ORT(CastTypeInfoToTensorInfo, void *, void **)(type, &info));
	if (!failure && info) failure = shape_of(info, to);
	ORT(ReleaseTypeInfo, void *)(type);
	return failure;
}

void session_close(engine *e, session *s) {
	if (s->session) ORT(ReleaseSession, void *)(s->session);
	if (s->options) ORT(ReleaseSessionOptions, void *)(s->options);
	if (e->context && !cu.current(e->context)) {
		for (int i = 0; i < 4; i++)
			if (s->at[i]) cu.destroy_event(s->at[i]);
		if (s->stream) cu.destroy_stream(s->stream);
	}
	memset(s, 0, sizeof *s);
}

// value_open makes a tensor of memory that is there. The caller releases it.
char *value_open(engine *e, int on_host, address data, size_t bytes, int type, const int64_t *shape, size_t dimensions, void **value) {
	OK("CreateTensorWithDataAsOrtValue",
		ORT(CreateTensorWithDataAsOrtValue, void *, void *, size_t, const int64_t *, size_t, int, void **)
		(on_host ? e->host : e->memory, (void *)(uintptr_t)data, bytes, shape, dimensions, type, value));
	return NULL;
}

void value_release(void *value) {
	if (value) ORT(ReleaseValue, void *)(value);
}

char *batch_open(session *s, batch *b) {
	OK("CreateIoBinding", ORT(CreateIoBinding, void *, void **)(s->session, &b->binding));
	return NULL;
}

// batch_bind puts an input or output at a place of the device's or the host's memory.
char *batch_bind(engine *e, batch *b, int output, const char *name, int type, const int64_t *shape, size_t dimensions, int on_host, address data, size_t bytes) {
	void *value;
	TRY(value_open(e, on_host, data, bytes, type, shape, dimensions, &value));
	char *failure = output ? ort_failed("BindOutput", ORT(BindOutput, void *, const char *, void *)(b->binding, name, value))
			       : ort_failed("BindInput", ORT(BindInput, void *, const char *, void *)(b->binding, name, value));
	// The binding keeps a reference of its own.
	ORT(ReleaseValue, void *)(value);
	return failure;
}

// batch_bind_unknown lets ONNX Runtime allocate an output in the device's memory.
char *batch_bind_unknown(engine *e, batch *b, const char *name) {
	OK("BindOutputToDevice", ORT(BindOutputToDevice, void *, const char *, void *)(b->binding, name, e->memory));
	return NULL;
}

char *batch_compute(engine *e, session *s, batch *b) {
	OK("RunWithBinding", ORT(RunWithBinding, void *, void *, void *)(s->session, e->run, b->binding));
	return NULL;
}

// batch_run copies the inputs, computes, copies the outputs and waits. The times are those of
// the three steps on the device. Without copies it computes on the inputs that are there.
char *batch_run(engine *e, session *s, batch *b, int graph, int copy_in, int copy_out, float *milliseconds) {
	CU("cuCtxSetCurrent", cu.current(e->context));
	CU("cuEventRecord", cu.record(s->at[0], s->stream));
	if (copy_in) CU("cuMemcpyHtoDAsync", cu.to_device(b->in, b->from, b->in_bytes, s->stream));
	CU("cuEventRecord", cu.record(s->at[1], s->stream));
	if (graph)
		CU("cuGraphLaunch", cu.launch_graph(b->exec, s->stream));
	else
		TRY(batch_compute(e, s, b));
	CU("cuEventRecord", cu.record(s->at[2], s->stream));
	if (copy_out && b->out_bytes) CU("cuMemcpyDtoHAsync", cu.to_host(b->to, b->out, b->out_bytes, s->stream));
	CU("cuEventRecord", cu.record(s->at[3], s->stream));
	CU("cuEventSynchronize", cu.wait_event(s->at[3]));
	for (int i = 0; i < 3; i++) CU("cuEventElapsedTime", cu.elapsed(&milliseconds[i], s->at[i], s->at[i + 1]));
	return NULL;
}

// batch_output gives an output that ONNX Runtime allocated in the last run. The caller
// releases the value after it has copied the data.
char *batch_output(batch *b, size_t index, port *shape, address *data, void **value) {
	void *allocator, **values, *info, *at;
	size_t count;
	OK("GetAllocatorWithDefaultOptions", ORT(GetAllocatorWithDefaultOptions, void **)(&allocator));
	OK("GetBoundOutputValues", ORT(GetBoundOutputValues, void *, void *, void ***, size_t *)(b->binding, allocator, &values, &count));
	*value = NULL;
	for (size_t i = 0; i < count; i++) {
		if (i == index)
			*value = values[i];
		else
			ORT(ReleaseValue, void *)(values[i]);
	}
	ORT(AllocatorFree, void *, void *)(allocator, values);
	if (!*value) return say("GetBoundOutputValues", "there is no such output");
	OK("GetTensorTypeAndShape", ORT(GetTensorTypeAndShape, void *, void **)(*value, &info));
	char *failure = shape_of(info, shape);
	ORT(ReleaseTensorTypeAndShapeInfo, void *)(info);
	if (failure) return failure;
	OK("GetTensorMutableData", ORT(GetTensorMutableData, void *, void **)(*value, &at));
	*data = (uintptr_t)at;
	return NULL;
}

// stream_check gives the error of what ran on a stream, such as one that ended the context: each
// later call then fails, too.
char *stream_check(engine *e, session *s) {
	CU("cuCtxSetCurrent", cu.current(e->context));
	CU("cuStreamSynchronize", cu.wait_stream(s->stream));
	return NULL;
}

char *batch_fetch(engine *e, session *s, address data, void *to, size_t bytes) {
	CU("cuCtxSetCurrent", cu.current(e->context));
	CU("cuMemcpyDtoHAsync", cu.to_host(to, data, bytes, s->stream));
	CU("cuStreamSynchronize", cu.wait_stream(s->stream));
	return NULL;
}

void batch_close(engine *e, batch *b) {
	if (b->exec && !cu.current(e->context)) cu.destroy_exec(b->exec);
	if (b->binding) ORT(ReleaseIoBinding, void *)(b->binding);
	b->exec = b->binding = NULL;
}
