package engine

import "os"

const telemetryEnv = "ORT_DISABLE_TELEMETRY"

// NoTelemetry is the environment entry of every child that may load ONNX Runtime. Without
// it the library reports to its maker: it keeps a device's identifier and a queue of events
// below the user's cache, and uploads them.
const NoTelemetry = telemetryEnv + "=1"

// DisableTelemetry sets [NoTelemetry] in this process's environment, for the library that it
// loads later and for the children that inherit the environment.
func DisableTelemetry() error { return os.Setenv(telemetryEnv, "1") }
