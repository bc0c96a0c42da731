// A session of ONNX Runtime on a CUDA stream. Every function that returns a char * returns
// NULL, or a message that the caller frees: the failed call and the library's text.
#pragma once
#include "driver.h"

// The places of functions in ONNX Runtime's table OrtApi, which only grows at its end. A test
// compares them with the header.
enum {
	ort_version = 24,
	ort_GetErrorMessage = 2,
	ort_CreateEnv = 3,
	ort_DisableTelemetryEvents = 6,
	ort_CreateSession = 7,
	ort_CreateSessionOptions = 10,
	ort_SetOptimizedModelFilePath = 11,
	ort_DisableCpuMemArena = 19,
	ort_SetSessionLogSeverityLevel = 22,
	ort_SetSessionGraphOptimizationLevel = 23,
	ort_SetIntraOpNumThreads = 24,
	ort_SetInterOpNumThreads = 25,
	ort_SessionGetInputCount = 30,
	ort_SessionGetOutputCount = 31,
	ort_SessionGetInputTypeInfo = 33,
	ort_SessionGetOutputTypeInfo = 34,
	ort_SessionGetInputName = 36,
	ort_SessionGetOutputName = 37,
	ort_CreateRunOptions = 39,
	ort_CreateTensorWithDataAsOrtValue = 49,
	ort_GetTensorMutableData = 51,
	ort_CastTypeInfoToTensorInfo = 55,
	ort_GetTensorElementType = 60,
	ort_GetDimensionsCount = 61,
	ort_GetDimensions = 62,
	ort_GetTensorTypeAndShape = 65,
	ort_CreateMemoryInfo = 68,
	ort_CreateCpuMemoryInfo = 69,
	ort_AllocatorFree = 76,
	ort_GetAllocatorWithDefaultOptions = 78,
	ort_ReleaseEnv = 92,
	ort_ReleaseStatus = 93,
	ort_ReleaseMemoryInfo = 94,
	ort_ReleaseSession = 95,
	ort_ReleaseValue = 96,
	ort_ReleaseRunOptions = 97,
	ort_ReleaseTypeInfo = 98,
	ort_ReleaseTensorTypeAndShapeInfo = 99,
	ort_ReleaseSessionOptions = 100,
	ort_AddSessionConfigEntry = 130,
	ort_CreateAllocator = 131,
	ort_ReleaseAllocator = 132,
	ort_RunWithBinding = 133,
	ort_CreateIoBinding = 134,
	ort_ReleaseIoBinding = 135,
	ort_BindInput = 136,
	ort_BindOutput = 137,
	ort_BindOutputToDevice = 138,
	ort_GetBoundOutputValues = 140,
	ort_AddInitializer = 150,
	ort_AddRunConfigEntry = 165,
	ort_SessionOptionsAppendExecutionProvider_CUDA_V2 = 204,
	ort_CreateCUDAProviderOptions = 205,
	ort_UpdateCUDAProviderOptions = 206,
	ort_ReleaseCUDAProviderOptions = 208,
	ort_MemoryInfoGetDeviceType = 225,
	ort_UpdateCUDAProviderOptionsWithValue = 263,
	ort_GetKeyValue = 297,
	ort_ReleaseKeyValuePairs = 300,
	ort_AllocatorGetStats = 319,
	ort_SessionGetMemoryInfoForInputs = 380,
};

enum { max_dimensions = 16 };

// What the sessions of an engine share: the device's context and ONNX Runtime's environment.
typedef struct {
	void *context, *env, *run, *memory, *host;
} engine;

// A session on a stream of its own. at are events: before and after the copy of the inputs,
// after the model, after the copy of the outputs.
typedef struct {
	void *stream, *at[4];
	void *options, *session;
} session;

// An input or output of the model.
typedef struct {
	char *name;
	int type;
	size_t dimensions;
	int64_t shape[max_dimensions];
} port;

// node_types are the driver's types of a graph's nodes: kernel, copy, …
enum { node_kernel, node_copy, node_set, node_host, node_empty = 5, node_allocate = 10, node_free, node_types = 14 };

extern const char *const node_names[node_types];

// A batch size with its place in memory. exec is its captured graph, or NULL, and nodes are the
// numbers of the graph's nodes by type.
typedef struct {
	void *binding, *exec;
	size_t nodes[node_types];
	address in, out;
	void *from, *to;
	size_t in_bytes, out_bytes;
} batch;

// Memory of the device that other processes can map by a file descriptor, -1 if they cannot. The
// address is 0 if there is none.
typedef struct {
	address at;
	size_t bytes;
	int descriptor, alone;
} region;

char *ort_load(const char *path, char **version);
char *library_load(const char *path);
void host_trim(void);

char *device_open(int *version);
char *device_describe(int device, char *name, int length, unsigned char *uuid, size_t *total);
char *device_attribute(int device, int attribute, int *value);
char *device_context(engine *e);
char *device_memory(engine *e, size_t *free, size_t *total);
char *device_reserve(engine *e, size_t bytes, address *to);
char *host_reserve(engine *e, size_t bytes, void **to);
void device_release(engine *e, address at);
void host_release(engine *e, void *at);

char *engine_open(engine *e, const char *memory);
void engine_close(engine *e);

char *stream_open(engine *e, session *s);
char *stream_check(engine *e, session *s);
char *session_provide(session *s, const char **keys, const char **values, size_t count);
char *session_use(session *s, const char *name, void *value);
char *session_open(engine *e, session *s, const char *model, int optimised, const char *keep);
char *session_port(session *s, int output, size_t index, port *to);
size_t session_ports(session *s, int output);
char *session_places(session *s, int *on_host, size_t inputs);
char *session_used(engine *e, session *s, int64_t *bytes);
void session_close(engine *e, session *s);

char *region_make(engine *e, size_t bytes, region *r);
char *region_alone(engine *e, size_t bytes, region *r);
char *region_import(engine *e, int descriptor, region *r);
char *region_fill(engine *e, session *s, address to, const void *from, size_t bytes);
char *region_seal(region *r);
void region_close(engine *e, region *r);

char *value_open(engine *e, int on_host, address data, size_t bytes, int type, const int64_t *shape, size_t dimensions, void **value);
void value_release(void *value);

char *batch_open(session *s, batch *b);
char *batch_bind(engine *e, batch *b, int output, const char *name, int type, const int64_t *shape, size_t dimensions, int on_host, address data, size_t bytes);
char *batch_bind_unknown(engine *e, batch *b, const char *name);
char *batch_compute(engine *e, session *s, batch *b);
char *batch_run(engine *e, session *s, batch *b, int graph, int copy_in, int copy_out, float *milliseconds);
char *batch_output(batch *b, size_t index, port *shape, address *data, void **value);
char *batch_fetch(engine *e, session *s, address data, void *to, size_t bytes);
char *batch_capture(engine *e, session *s, batch *b);
void batch_close(engine *e, batch *b);

// A kernel of multiply-adds.
typedef struct {
	void *kernel;
	address sum;
} burner;

char *burner_open(engine *e, burner *b);
char *burner_run(engine *e, session *s, burner *b, unsigned blocks, unsigned threads, unsigned rounds);
