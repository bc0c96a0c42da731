package pixels

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"math"
	"slices"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"
	"golang.org/x/image/webp"
)

// maxMemory is the maximum memory in bytes to decode one image, enough for a photograph
// of 20 megapixels. An instance's plan has only some tens of MB in addition to the model.
const maxMemory = 32 << 20

// maxSide is the maximum width or height in pixels, which is JPEG's own limit.
const maxSide = 65535

// maxScans is the maximum number of scans in a progressive image. Each scan takes a
// pass over the whole image, even if it changes little.
const maxScans = 256

// errFormat refuses a file that is not a supported image.
var errFormat = errors.New("it is not a JPEG, PNG, GIF, WebP, BMP or TIFF image")

// format is a file format of images.
type format struct {
	// begins reports whether a file begins like one of the format.
	begins func(file []byte) bool
	config func(io.Reader) (image.Config, error)
	decode func(io.Reader) (image.Image, error)
	// memory estimates from a file's head how many bytes its decoder allocates.
	memory func(file []byte, config image.Config) int64
}

// formats lists the supported formats.
var formats = []format{
	{isJPEG, jpeg.DecodeConfig, jpeg.Decode, jpegMemory},
	{isPNG, png.DecodeConfig, png.Decode, pngMemory},
	{isGIF, gif.DecodeConfig, gif.Decode, gifMemory},
	{isWebP, webp.DecodeConfig, decodeWebP, webpMemory},
	{isBMP, bmp.DecodeConfig, bmp.Decode, bmpMemory},
	{isTIFF, tiff.DecodeConfig, tiff.Decode, tiffMemory},
}

func formatOf(file []byte) (format, bool) {
	at := slices.IndexFunc(formats, func(f format) bool { return f.begins(file) })
	if at < 0 {
		return format{}, false
	}
	return formats[at], true
}

// Is reports whether a file begins like an image of a supported format.
func Is(file []byte) bool {
	_, ok := formatOf(file)
	return ok
}

func isJPEG(file []byte) bool { return bytes.HasPrefix(file, []byte("\xff\xd8\xff")) }
func isPNG(file []byte) bool  { return bytes.HasPrefix(file, []byte("\x89PNG\r\n\x1a\n")) }

// decode decodes an image. It first refuses one that needs more than maxMemory.
func decode(file []byte) (image.Image, error) {
	f, ok := formatOf(file)
	if !ok {
		return nil, errFormat
	}
	config, err := f.config(bytes.NewReader(file))
	if err != nil {
		return nil, fmt.Errorf("the image's head cannot be read: %w", err)
	}
	if config.Width < 1 || config.Height < 1 {
		return nil, errors.New("the image has no pixels")
	}
	if config.Width > maxSide || config.Height > maxSide {
		return nil, fmt.Errorf("the image has %dx%d pixels; neither side may have more than %d, so send it smaller", config.Width, config.Height, maxSide)
	}
	if need := f.memory(file, config); need > maxMemory {
		return nil, fmt.Errorf("the image has %dx%d pixels and needs %d MB to decode; the limit is %d MB, so send it smaller",
			config.Width, config.Height, need>>20, int64(maxMemory)>>20)
	}
	if isJPEG(file) && bytes.Count(file, []byte("\xff\xda")) > maxScans {
		return nil, fmt.Errorf("the image has more than %d scans; save it as a baseline JPEG", maxScans)
	}
	img, err := f.decode(bytes.NewReader(file))
	if err != nil {
		return nil, fmt.Errorf("the image cannot be decoded: %w", err)
	}
	return onCanvas(img, config), nil
}

// pngMemory is a PNG's memory.
func pngMemory(file []byte, config image.Config) int64 {
	each := bytesEach(config)
	if interlaced := len(file) > 28 && file[28] != 0; interlaced {
		each *= 2 // The passes are images of their own, in addition to the whole one.
	}
	return pixels(config) * each
}

// pixels is an image's number of pixels.
func pixels(config image.Config) int64 { return int64(config.Width) * int64(config.Height) }

// bytesEach is the size in bytes of a decoded pixel.
func bytesEach(config image.Config) int64 {
	switch config.ColorModel {
	case color.GrayModel:
		return 1
	case color.Gray16Model:
		return 2
	case color.RGBA64Model, color.NRGBA64Model:
		return 8
	}
	if _, ok := config.ColorModel.(color.Palette); ok {
		return 1
	}
	return 4
}

// jpegMemory is a JPEG's memory.
func jpegMemory(file []byte, config image.Config) int64 {
	components, samples, progressive := frameHeader(file)
	// The decoder keeps all coefficients of a progressive image until the end, 4 bytes
	// each: 1 + 4 = 5 bytes a sample.
	perSample := 1.0
	if progressive {
		perSample = 5
	}
	need := float64(pixels(config)) * samples * perSample
	if components == 4 || config.ColorModel == color.RGBAModel {
		need += 4 * float64(pixels(config)) // The decoder converts it into a second image.
	}
	return int64(need)
}

// frameHeader reads a JPEG's frame header: the number of components, the mean number of
// samples per pixel, and whether the image is progressive. Without a valid header it
// returns the values that need the most memory.
func frameHeader(file []byte) (components int, samples float64, progressive bool) {
	for at := 2; at+4 <= len(file) && file[at] == 0xff; {
		marker := file[at+1]
		switch {
		case marker == 0xff: // A fill byte.
			at++
			continue
		case marker == 0, marker >= 0xd0 && marker <= 0xd7: // The decoder skips them, and they have no length.
			at += 2
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
	largest, sum := 1, 0
	for i := range components {
		factors := head[6+3*i+1]
		each := max(1, int(factors>>4)) * max(1, int(factors&15))
		largest, sum = max(largest, each), sum+each
	}
	return components, float64(sum) / float64(largest), progressive
}

// gray returns a pixel's brightness by the weights of ITU-R BT.601.
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
