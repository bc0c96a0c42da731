package origin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/model/source"
)

// lookFile finds a file or a folder of this machine, below the directories that the provider allows.
func (c *Client) lookFile(u source.URI) (*Finding, error) {
	dirs := c.sources.dirs
	real, err := filepath.EvalSymlinks(u.Path)
	in := slices.IndexFunc(dirs, func(dir string) bool {
		below, far := filepath.Rel(dir, real)
		return err == nil && far == nil && filepath.IsLocal(below)
	})
	// Nobody learns which other files there are.
	if in < 0 {
		return nil, Fatal{fmt.Errorf("there is no such file below the directories that the provider "+
			"allows with --model-sources%s", listed(dirs))}
	}
	root, err := os.OpenRoot(dirs[in])
	if err != nil {
		return nil, Fatal{err}
	}
	defer root.Close()
	if real, err = filepath.Rel(dirs[in], real); err != nil {
		return nil, Fatal{err}
	}
	if !u.Folder() {
		o, line, err := localObject(root, dirs[in], real, "")
		if err != nil {
			return nil, err
		}
		o.Sum, o.Original = u.Sum, u.Name() // A link's name counts, and not that of its file.
		return &Finding{Tag: line, Objects: []*Object{o}}, nil
	}
	var objects []*Object
	var lines []string
	err = fs.WalkDir(root.FS(), filepath.ToSlash(real), func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || len(objects) > MaxFiles {
			return err
		}
		below, err := filepath.Rel(real, name)
		if err != nil {
			return err
		}
		o, line, err := localObject(root, dirs[in], name, filepath.ToSlash(below))
		if err == nil {
			objects, lines = append(objects, o), append(lines, line)
		}
		return err
	})
	if err != nil {
		return nil, Fatal{err}
	}
	return folder(objects, lines)
}

func listed(dirs []string) string {
	if len(dirs) == 0 {
		return "; it allows none"
	}
	return " " + strings.Join(dirs, ",")
}

// localObject is a file of this machine. line identifies its state.
func localObject(root *os.Root, dir, file, name string) (o *Object, line string, err error) {
	info, err := root.Stat(file)
	if err != nil {
		return nil, "", Fatal{fmt.Errorf("%s cannot be read: %w", file, errors.Unwrap(err))}
	}
	if !info.Mode().IsRegular() {
		return nil, "", Fatal{fmt.Errorf("%s is no file; end the URI with / to name a folder", file)}
	}
	line = fmt.Sprintf("%s %d %d", name, info.Size(), info.ModTime().UnixNano())
	o = &Object{Name: name, Original: filepath.Base(file), Size: info.Size(), Tag: line}
	o.Open = func(_ context.Context, offset int64) (io.ReadCloser, int64, error) {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return nil, 0, Fatal{err}
		}
		defer root.Close()
		f, err := root.Open(file)
		if err != nil {
			return nil, 0, Fatal{err}
		}
		if _, err := f.Seek(offset, io.SeekStart); err != nil {
			return nil, 0, Fatal{errors.Join(err, f.Close())}
		}
		return f, offset, nil
	}
	return o, line, nil
}
