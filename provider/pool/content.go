package pool

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// largeFile is the size in bytes from which the hash of a bundle's file is remembered.
const largeFile = 64 << 10

// defaultModel is the name of a bundle's only model. It is not hashed, and other names are: a program may see them.
const defaultModel = "model.onnx"

// content is a hash of a bundle's files. That of the model is known. A file behind a link counts as one of the bundle,
// since instances read it, too. apart is why the bundle's instances cannot be shared, "" if they can.
func (p *Pools) content(bundle, model, modelHash string) (sum, apart string, err error) {
	to := sha256.New()
	fmt.Fprintf(to, "model %s images %s\n", modelHash, filepath.Ext(model))
	root, err := filepath.EvalSymlinks(bundle)
	info, infoErr := os.Stat(root)
	if err != nil || infoErr != nil || !info.IsDir() {
		fmt.Fprintln(to, bundle) // An image: its digest stands for its content.
		return hex.EncodeToString(to.Sum(nil)), "", nil
	}
	known, err := filepath.Rel(bundle, model)
	if err == nil && known != defaultModel {
		fmt.Fprintf(to, "named %q\n", known)
	}
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path)
		if err != nil || e.IsDir() || rel == known {
			return err
		}
		if outside := linkOut(root, path, e); outside != "" {
			apart = fmt.Sprintf("%s in its bundle is a link to %s, whose files may change", rel, outside)
			return filepath.SkipAll
		}
		return p.addFile(to, path, rel)
	})
	return hex.EncodeToString(to.Sum(nil)), apart, err
}

// linkOut is the directory to which a link leads out of a bundle, "" for anything else.
func linkOut(root, path string, e fs.DirEntry) string {
	if e.Type()&fs.ModeSymlink == 0 {
		return ""
	}
	to, err := filepath.EvalSymlinks(path)
	if err != nil || strings.HasPrefix(to+"/", root+"/") {
		return ""
	}
	if info, err := os.Stat(to); err != nil || !info.IsDir() {
		return ""
	}
	return to
}

// addFile adds a file of a bundle to a hash, or where it leads if it is no file.
func (p *Pools) addFile(to hash.Hash, path, rel string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil || !info.Mode().IsRegular():
		link, _ := os.Readlink(path) // Of another directory of the bundle, or of nothing.
		fmt.Fprintf(to, "%q leads to %q\n", rel, link)
	case info.Size() >= largeFile:
		of, err := p.options.Hash(path)
		fmt.Fprintf(to, "%q %s\n", rel, of)
		return err
	default:
		text, err := os.ReadFile(path)
		fmt.Fprintf(to, "%q %x\n", rel, sha256.Sum256(text))
		return err
	}
	return nil
}
