// Package pixels converts JPEG, PNG, GIF, WebP, BMP and TIFF images into a model's input, as the deployment's
// [model.ImageForm] says. It calculates the memory to decode an image from its header and
// refuses too large ones before it decodes: a small file may hold a large image. Begin
// with [New].
//
// It ignores the EXIF tag for a camera's orientation, as the image libraries of training
// pipelines do.
package pixels

import (
	"fmt"
	"image"
	"slices"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Maker converts images into rows of one input. It is safe for concurrent use.
type Maker struct {
	form model.ImageForm
	kind tensor.Type
	// channels is 1 or 3. first says that the channels come before height and width.
	channels int
	first    bool
	// table maps each channel's 256 values to the input's. It is nil for UINT8.
	table [][256]float32
	// turn limits how many images are decoded at once.
	turn chan struct{}
}

// maxDecoders is how many images a Maker decodes at the same time. Each may take
// maxMemory.
const maxDecoders = 2

// New returns a Maker for the only input of a model. The error says why the form does
// not fit the input.
func New(form model.ImageForm, inputs []tensor.Info) (*Maker, error) {
	if len(inputs) != 1 {
		return nil, fmt.Errorf("the model has %d inputs; only a model with one input takes images", len(inputs))
	}
	in := inputs[0]
	m := &Maker{form: form, kind: in.Type, turn: make(chan struct{}, maxDecoders)}
	if in.Type != tensor.FP32 && in.Type != tensor.Uint8 {
		return nil, fmt.Errorf("input %q is %s; images need an input of FP32 or UINT8", in.Name, in.Type)
	}
	if err := m.layout(in); err != nil {
		return nil, err
	}
	if in.Type == tensor.Uint8 {
		if form.Ranged || len(form.Mean)+len(form.Std) > 0 {
			return nil, fmt.Errorf("input %q is UINT8 and takes unscaled pixels; leave out range, mean and std", in.Name)
		}
		return m, nil
	}
	m.tables()
	return m, nil
}

// layout finds the channels in the input's shape.
func (m *Maker) layout(in tensor.Info) error {
	refuse := func() error {
		return fmt.Errorf("input %q has the shape %v; images of %dx%d need [-1,%[4]d,%[3]d,C] or [-1,C,%[4]d,%[3]d] with C 3 or 1",
			in.Name, in.Shape, m.form.Width, m.form.Height)
	}
	if len(in.Shape) == 3 { // A single channel needs no dimension.
		if !m.fits(in.Shape[1], in.Shape[2]) || m.form.Colour != model.ColourGray {
			return refuse()
		}
		m.channels, m.first = 1, true
		return nil
	}
	if len(in.Shape) != 4 {
		return refuse()
	}
	s := in.Shape
	isCount := func(d int64) bool { return d == 1 || d == 3 }
	switch {
	case isCount(s[3]) && m.fits(s[1], s[2]):
		m.channels = int(s[3])
	case isCount(s[1]) && m.fits(s[2], s[3]):
		m.channels, m.first = int(s[1]), true
	default:
		return refuse()
	}
	if gray := m.form.Colour == model.ColourGray; m.form.Colour != "" && gray != (m.channels == 1) {
		return fmt.Errorf("input %q has %d channels, but colour=%s has another number", in.Name, m.channels, m.form.Colour)
	}
	if max(len(m.form.Mean), len(m.form.Std)) > m.channels {
		return fmt.Errorf("input %q has one channel; give one number for mean and std", in.Name)
	}
	return nil
}

func (m *Maker) fits(height, width int64) bool {
	return (height < 0 || height == int64(m.form.Height)) && (width < 0 || width == int64(m.form.Width))
}

// tables calculates the input's value for each value of each channel.
func (m *Maker) tables() {
	at := func(values []float64, c int, none float64) float64 {
		switch len(values) {
		case 0:
			return none
		case 1:
			return values[0]
		}
		return values[c]
	}
	m.table = make([][256]float32, m.channels)
	for c := range m.table {
		mean, std := at(m.form.Mean, c, 0), at(m.form.Std, c, 1)
		for v := range m.table[c] {
			scaled := m.form.Low + float64(v)/255*(m.form.High-m.form.Low)
			m.table[c][v] = float32((scaled - mean) / std)
		}
	}
}

// Row returns the size in bytes of one image as a row of the input.
func (m *Maker) Row() int { return m.form.Width * m.form.Height * m.channels * m.kind.Size() }

// Shape returns the shape of the input info with this number of images.
func (m *Maker) Shape(info tensor.Info, rows int) []int64 {
	w, h, c := int64(m.form.Width), int64(m.form.Height), int64(m.channels)
	switch {
	case len(info.Shape) == 3:
		return []int64{int64(rows), h, w}
	case m.first:
		return []int64{int64(rows), c, h, w}
	}
	return []int64{int64(rows), h, w, c}
}

// Append decodes one image and appends it to the rows in to.
func (m *Maker) Append(to, file []byte) ([]byte, error) {
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	img, err := decode(file)
	if err != nil {
		return to, err
	}
	return m.row(slices.Grow(to, m.Row()), fit(img, m.form)), nil
}

// row appends the pixels of an image that already has the form's size.
func (m *Maker) row(to []byte, img *image.RGBA) []byte {
	start, n := len(to), m.form.Width*m.form.Height
	to = to[:start+m.Row()]
	out := to[start:]
	for i := range n {
		px := img.Pix[4*i : 4*i+3 : 4*i+3]
		if m.channels == 1 {
			m.put(out, i, 0, gray(px))
			continue
		}
		for c := range 3 {
			from := c
			if m.form.Colour == model.ColourBGR {
				from = 2 - c
			}
			at := 3*i + c
			if m.first {
				at = c*n + i
			}
			m.put(out, at, c, px[from])
		}
	}
	return to
}
