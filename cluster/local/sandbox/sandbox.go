// Package sandbox isolates instances. The backend starts the process in namespaces of
// its own and passes a plan in the environment. The process carries out the plan before
// anything else, because without a helper program a mount namespace can only be set up
// from inside. The package does not decide what an instance may use; package cgroup
// limits that.
//
// An instance of a model ([Prepare], [Enter]) gets its secrets where OpenFaaS functions
// look for them, /var/openfaas/secrets/NAME. An instance of an ordinary function
// ([PrepareFunction], [EnterFunction]) gets more isolation and a filter on its system calls,
// because its program is not trusted: see [Function], where you begin to read.
//
// If the provider lacks the rights for this, the secrets are in a private directory that
// the environment names. [Dir] returns the directory in either case.
package sandbox

import (
	"encoding/json"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// SecretsDir is where OpenFaaS functions find their secrets.
	SecretsDir = "/var/openfaas/secrets"
	// EnvSandbox holds the plan that Enter carries out, as JSON.
	EnvSandbox = "FAAS_INFER_SANDBOX"
	// EnvSecretsDir names the directory of the secrets if there is no
	// sandbox.
	EnvSecretsDir = "FAAS_INFER_SECRETS_DIR"
)

const namespaceFile = "/proc/self/ns/mnt"

// plan is the content of EnvSandbox.
type plan struct {
	// Outside is the provider's mount namespace. Enter refuses to work in it,
	// because it would hide the machine's own files.
	Outside string `json:"outside"`
	// Secrets maps names to the files that hold the values.
	Secrets map[string]string `json:"secrets"`
}

// Prepare changes attr so that the process starts in a mount namespace of its own, from
// which nothing propagates back. It returns the environment entry with which the process
// must be started. It refuses secrets' names that are not plain file names.
func Prepare(attr *syscall.SysProcAttr, secrets map[string]string) (entry string, err error) {
	if err := checkNames(secrets); err != nil {
		return "", err
	}
	outside, err := os.Readlink(namespaceFile)
	if err != nil {
		return "", fmt.Errorf("own mount namespace: %w", err)
	}
	encoded, err := json.Marshal(plan{Outside: outside, Secrets: secrets})
	if err != nil {
		return "", fmt.Errorf("encode sandbox: %w", err)
	}
	attr.Unshareflags |= unix.CLONE_NEWNS
	return EnvSandbox + "=" + string(encoded), nil
}

// Enter mounts a small read-only file system with the secrets at [SecretsDir]. Only this
// process and its children see it. Enter does nothing if the process was not started with
// [Prepare]. Call it at the very start of an instance.
func Enter() error {
	encoded, ok := os.LookupEnv(EnvSandbox)
	if !ok {
		return nil
	}
	var p plan
	if err := json.Unmarshal([]byte(encoded), &p); err != nil {
		return fmt.Errorf("%s: %w", EnvSandbox, err)
	}
	if err := checkInside(p.Outside); err != nil {
		return err
	}
	if err := mountAll(p.Secrets); err != nil {
		return err
	}
	return os.Unsetenv(EnvSandbox)
}

// checkInside fails if this process is in the provider's mount namespace.
func checkInside(outside string) error {
	inside, err := os.Readlink(namespaceFile)
	if err != nil {
		return fmt.Errorf("own mount namespace: %w", err)
	}
	if inside == outside || outside == "" {
		return fmt.Errorf("%s is set, but this process has no mount namespace of its own", EnvSandbox)
	}
	return nil
}

// Dir returns where this process finds its secrets.
func Dir() string {
	if dir := os.Getenv(EnvSecretsDir); dir != "" {
		return dir
	}
	return SecretsDir
}

// mountAll mounts the secrets. It reads the values first, because they may be in the
// directory that the mount hides.
func mountAll(secrets map[string]string) error {
	values, size, err := readSecrets(secrets)
	if err != nil {
		return err
	}
	if err := cutOff(); err != nil {
		return err
	}
	if err := os.MkdirAll(SecretsDir, 0o755); err != nil {
		return fmt.Errorf("directory for secrets: %w", err)
	}
	return mountSecrets(values, size, os.Geteuid())
}

// cutOff keeps later mounts from propagating to the machine.
func cutOff() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	return nil
}
