package instances

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/spf13/pflag"

	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/text"
	"github.com/faas-infer/faas-infer/model/bundle"
)

// bundleFlags say where the files are that a model has beside it, and how long its texts may be.
type bundleFlags struct {
	// path is the bundle's directory, "" for that of the model.
	path string
	text text.Options
}

func (b *bundleFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&b.path, "bundle", "", "the bundle's directory: "+bundle.LabelsFile+
		" there names the model's classes, one on each line, and "+bundle.ManifestFile+
		" says how the model takes texts (default: that of --model)")
	flags.IntVar(&b.text.MaxLength, "max-length", 0,
		"maximum number of tokens of a text, special ones included; it cannot raise the bundle's (default: that)")
	flags.BoolVar(&b.text.Refuse, "refuse-long", false, "refuse longer texts; otherwise they are cut")
}

// maxAbove is the maximum number of folders between a model and its bundle.
const maxAbove = 4

// dir is the directory of the bundle of a model, "" if there is none. Without the flag it is the nearest one above the
// model with a manifest: a model may be in a folder of its bundle, as onnx/model.onnx.
func (b *bundleFlags) dir(model string) string {
	if b.path != "" || model == "" {
		return b.path
	}
	dir := filepath.Dir(model)
	for range maxAbove {
		if _, err := os.Stat(filepath.Join(dir, bundle.ManifestFile)); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	return filepath.Dir(model)
}

// ReadText makes the server of a model take texts if the bundle says how.
func (b *bundleFlags) ReadText(model string, o *instance.Options) error {
	set, err := b.beginText(model)
	if err == nil {
		set(o)
	}
	return err
}

// beginText begins to read how the model of a bundle takes texts, and returns what makes its server do so. The tokenizer
// is read while the engine loads: the vocabulary of a model of many languages takes as long as that.
func (b *bundleFlags) beginText(model string) (set func(*instance.Options), err error) {
	if b.text.MaxLength < 0 {
		return nil, fmt.Errorf("--max-length is %d: give 1 or more", b.text.MaxLength)
	}
	var read instance.Options
	if read.TextDir = b.dir(model); read.TextDir != "" {
		read.TextOptions = b.text
		read.Text, err = bundle.ReadText(read.TextDir)
	}
	if read.Text != nil {
		read.TextFiles = sync.OnceValues(func() (*text.Files, error) { return text.ReadFiles(read.TextDir, read.Text) })
		go func() { _, _ = read.TextFiles() }()
	}
	return func(o *instance.Options) {
		o.Text, o.TextDir, o.TextFiles, o.TextOptions = read.Text, read.TextDir, read.TextFiles, read.TextOptions
	}, err
}
