package pixels

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math"
)

// maxMemory is how many bytes decoding one image may take: a photograph of 20
// megapixels. Instances are not planned with more than some tens of MB beside the
// model.
const maxMemory = 32 << 20

// maxSide is the longest side in pixels, which is JPEG's own bound.
const maxSide = 65535

// maxScans is how many scans a progressive image may have: each goes over the
// whole image, however little it says.
const maxScans = 256

// errFormat is for what is no image that is understood.
var errFormat = errors.New("it is neither a JPEG nor a PNG image")

// Is reports whether a file begins as an image that is understood.
func Is(file []byte) bool { return isJPEG(file) || isPNG(file) }

func isJPEG(file []byte) bool { return bytes.HasPrefix(file, []byte("\xff\xd8\xff")) }
func isPNG(file []byte) bool  { return bytes.HasPrefix(file, []byte("\x89PNG\r\n\x1a\n")) }

// decode reads an image once it is known to need no more memory than it may.
func decode(file []byte) (image.Image, error) {
	var config image.Config
	var err error
	switch {
	case isJPEG(file):
		config, err = jpeg.DecodeConfig(bytes.NewReader(file))
	case isPNG(file):
		config, err = png.DecodeConfig(bytes.NewReader(file))
	default:
		return nil, errFormat
	}
	if err != nil {
		return nil, fmt.Errorf("the image's head cannot be read: %w", err)
	}
	if config.Width < 1 || config.Height < 1 {
		return nil, errors.New("the image has no pixels")
	}
	if config.Width > maxSide || config.Height > maxSide {
		return nil, fmt.Errorf("the image has %dx%d pixels; neither side may have more than %d, so send it smaller", config.Width, config.Height, maxSide)
	}
	if need := memory(file, config); need > maxMemory {
		return nil, fmt.Errorf("the image has %dx%d pixels and takes %d MB to decode; at most %d MB are given, so send it smaller",
			config.Width, config.Height, need>>20, int64(maxMemory)>>20)
	}
	if isJPEG(file) && bytes.Count(file, []byte("\xff\xda")) > maxScans {
		return nil, fmt.Errorf("the image comes in more than %d scans; save it as a baseline JPEG", maxScans)
	}
	var img image.Image
	if isJPEG(file) {
		img, err = jpeg.Decode(bytes.NewReader(file))
	} else {
		img, err = png.Decode(bytes.NewReader(file))
	}
	if err != nil {
		return nil, fmt.Errorf("the image cannot be decoded: %w", err)
	}
	return img, nil
}

// memory is how many bytes the decoder will take for an image, from its head.
func memory(file []byte, config image.Config) int64 {
	pixels := int64(config.Width) * int64(config.Height)
	if isPNG(file) {
		each := int64(4)
		switch config.ColorModel {
		case color.GrayModel:
			each = 1
		case color.Gray16Model:
			each = 2
		case color.RGBA64Model, color.NRGBA64Model:
			each = 8
		default:
			if _, ok := config.ColorModel.(color.Palette); ok {
				each = 1
			}
		}
		if interlaced := len(file) > 28 && file[28] != 0; interlaced {
			each *= 2 // Each pass is an image of its own, beside the whole.
		}
		return pixels * each
	}
	components, samples, progressive := frameHeader(file)
	// A progressive image's coefficients, 4 bytes each, are all kept until the end.
	perSample := 1.0
	if progressive {
		perSample = 5
	}
	need := float64(pixels) * samples * perSample
	if components == 4 || config.ColorModel == color.RGBAModel {
		need += 4 * float64(pixels) // It is put together in a second image.
	}
	return int64(need)
}

// frameHeader finds a JPEG's frame header: how many components there are, how
// many samples a pixel has on average, and whether it is progressive. Where there
// is none that makes sense, it is taken for the largest.
func frameHeader(file []byte) (components int, samples float64, progressive bool) {
	for at := 2; at+4 <= len(file) && file[at] == 0xff; {
		marker := file[at+1]
		if marker == 0xff { // A fill byte.
			at++
			continue
		}
		length := int(binary.BigEndian.Uint16(file[at+2:]))
		if marker >= 0xc0 && marker <= 0xc2 {
			if head := file[at+4:]; length >= 8 && len(head) >= length-2 {
				return frame(head[:length-2], marker == 0xc2)
			}
			break
		}
		at += 2 + length
	}
	return 4, 4, true
}

func frame(head []byte, progressive bool) (components int, samples float64, _ bool) {
	components = int(head[5])
	if components == 0 || len(head) < 6+3*components {
		return 4, 4, progressive
	}
	most, sum := 1, 0
	for i := range components {
		factors := head[6+3*i+1]
		each := max(1, int(factors>>4)) * max(1, int(factors&15))
		most, sum = max(most, each), sum+each
	}
	return components, float64(sum) / float64(most), progressive
}

// gray is a pixel's brightness as ITU-R BT.601 weighs the colours.
func gray(rgb []byte) byte {
	return byte((299*int(rgb[0]) + 587*int(rgb[1]) + 114*int(rgb[2]) + 500) / 1000)
}

// put writes one value of a channel.
func (m *Maker) put(to []byte, at, channel int, value byte) {
	if m.table == nil {
		to[at] = value
		return
	}
	binary.LittleEndian.PutUint32(to[4*at:], math.Float32bits(m.table[channel][value]))
}
