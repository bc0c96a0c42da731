package async

import "os"

// childRole is what this process is to be instead of a test.
func childRole() string { return os.Getenv("FAAS_INFER_ASYNC_CHILD") }

// children are the processes that tests start and kill.
var children = map[string]func(){}
