package pixels

import (
	"image"
	"image/draw"
	"math"

	"github.com/faas-infer/faas-infer/model"
)

// fit scales an image to the form's size. Transparent parts become black.
func fit(img image.Image, form model.ImageForm) *image.RGBA {
	out := image.NewRGBA(image.Rect(0, 0, form.Width, form.Height))
	from, to := img.Bounds(), out.Bounds()
	scale := func(pick func(a, b float64) float64) float64 {
		return pick(float64(form.Width)/float64(from.Dx()), float64(form.Height)/float64(from.Dy()))
	}
	switch form.Fit {
	case model.FitCrop:
		s := scale(math.Max)
		from = middle(from, whole(float64(form.Width)/s, from.Dx()), whole(float64(form.Height)/s, from.Dy()))
	case model.FitPad:
		s := scale(math.Min)
		to = middle(to, whole(float64(from.Dx())*s, form.Width), whole(float64(from.Dy())*s, form.Height))
	}
	if from.Size() == to.Size() {
		draw.Draw(out, to, img, from.Min, draw.Src)
		return out
	}
	resize(out, to, img, from)
	return out
}

// whole rounds a length to an integer from 1 to limit.
func whole(length float64, limit int) int { return min(limit, max(1, int(math.Round(length)))) }

// middle returns a rectangle of the given size in the middle of another.
func middle(of image.Rectangle, width, height int) image.Rectangle {
	at := of.Min.Add(image.Pt((of.Dx()-width)/2, (of.Dy()-height)/2))
	return image.Rectangle{Min: at, Max: at.Add(image.Pt(width, height))}
}

// tap says how to calculate one element of a scaled line: the sum of the source line's
// elements from first on, each with its weight.
type tap struct {
	first   int
	weights []float32
}

// taps returns the taps that scale a line of m elements to n. A longer line interpolates
// linearly between the nearest two elements. A shorter one takes a weighted mean of all
// the elements around, so it skips none.
func taps(n, m int) []tap {
	ratio := float64(m) / float64(n)
	reach := math.Max(1, ratio)
	out := make([]tap, n)
	for i := range out {
		centre := (float64(i) + .5) * ratio
		first, end := max(0, int(math.Floor(centre-reach))), min(m, int(math.Ceil(centre+reach)))
		var weights []float32
		var sum float32
		for j := first; j < end; j++ {
			w := float32(math.Max(0, 1-math.Abs(float64(j)+.5-centre)/reach))
			weights = append(weights, w)
			sum += w
		}
		for j := range weights {
			weights[j] /= sum
		}
		out[i] = tap{first, weights}
	}
	return out
}

// resize scales one rectangle of an image into a rectangle of another. It works line by
// line: in addition to the two images it needs memory for a few lines only.
func resize(out *image.RGBA, to image.Rectangle, img image.Image, from image.Rectangle) {
	across, down := taps(to.Dx(), from.Dx()), taps(to.Dy(), from.Dy())
	line := image.NewRGBA(image.Rect(0, 0, from.Dx(), 1))
	sums := map[int][]float32{} // The incomplete lines of the result, by their number.
	short := make([]float32, 3*to.Dx())
	begun := 0
	for y := range from.Dy() {
		draw.Draw(line, line.Bounds(), img, image.Pt(from.Min.X, from.Min.Y+y), draw.Src)
		narrow(short, line.Pix, across)
		for begun < len(down) && down[begun].first <= y {
			sums[begun] = make([]float32, len(short))
			begun++
		}
		for at, sum := range sums {
			t := down[at]
			w := t.weights[y-t.first]
			for i, v := range short {
				sum[i] += w * v
			}
			if y == t.first+len(t.weights)-1 {
				finish(out, image.Pt(to.Min.X, to.Min.Y+at), sum)
				delete(sums, at)
			}
		}
	}
}

// narrow scales a line of RGBA to a line of red, green and blue.
func narrow(to []float32, pix []byte, across []tap) {
	for x, t := range across {
		var r, g, b float32
		px := pix[4*t.first : 4*(t.first+len(t.weights))]
		for i, w := range t.weights {
			r += w * float32(px[4*i])
			g += w * float32(px[4*i+1])
			b += w * float32(px[4*i+2])
		}
		to[3*x], to[3*x+1], to[3*x+2] = r, g, b
	}
}

// finish rounds a line and writes it into the image.
func finish(out *image.RGBA, at image.Point, sum []float32) {
	pix := out.Pix[out.PixOffset(at.X, at.Y):]
	for x := range len(sum) / 3 {
		for c := range 3 {
			pix[4*x+c] = byte(min(255, sum[3*x+c]+.5))
		}
		pix[4*x+3] = 0xff
	}
}
