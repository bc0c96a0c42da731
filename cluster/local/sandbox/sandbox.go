// Package sandbox gives instances their surroundings. The backend starts the
// process in namespaces of its own and tells it through its environment what to
// set up; the process does so first of all, because only from inside can a
// mount namespace be furnished without a helper program.
//
// A model's instance ([Prepare], [Enter]) gets its secrets where OpenFaaS
// functions look for them, /var/openfaas/secrets/NAME. An ordinary function's
// ([PrepareFunction], [EnterFunction]) gets much more, since its program is not
// ours: see [Function].
//
// Where the rights for this are missing, the secrets lie in a private
// directory that the environment names. [Dir] hides the difference.
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
	// EnvSandbox holds what Enter is to set up, as JSON.
	EnvSandbox = "FAAS_INFER_SANDBOX"
	// EnvSecretsDir names the directory of the secrets where there is no
	// sandbox.
	EnvSecretsDir = "FAAS_INFER_SECRETS_DIR"
)

const namespaceFile = "/proc/self/ns/mnt"

// plan is what EnvSandbox carries.
type plan struct {
	// Outside is the starter's mount namespace. Enter refuses to work there,
	// or it would hide the machine's own files.
	Outside string `json:"outside"`
	// Secrets maps names to the files that hold the values.
	Secrets map[string]string `json:"secrets"`
}

// Prepare changes attr so that the process starts in a mount namespace of its
// own, from which nothing propagates back, and returns the environment entry
// with which it must be started. Names of secrets are checked.
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

// Enter sets up what the environment asks for: a small read-only file system
// at [SecretsDir] with the secrets in it, seen by this process and its
// children only. It does nothing if the process was not started with
// [Prepare]. To be called at the very start of an instance.
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
	if err := furnish(p.Secrets); err != nil {
		return err
	}
	return os.Unsetenv(EnvSandbox)
}

// checkInside fails if this process lives in the starter's mount namespace.
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

// furnish mounts the secrets. The values are read first: they may lie in the
// very directory that the mount hides.
func furnish(secrets map[string]string) error {
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

// cutOff keeps what is mounted from now on from the machine.
func cutOff() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cut mounts off from the machine's: %w", err)
	}
	return nil
}
