package model

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// MaxSide is the largest width and height in pixels that a form may have.
const MaxSide = 2048

// The ways to fit an image to the form.
const (
	// FitStretch scales width and height independently. It is the default.
	FitStretch = "stretch"
	// FitCrop scales the image until it covers the form, and cuts the excess off
	// equally at both sides.
	FitCrop = "crop"
	// FitPad scales the image until it lies within the form, in the middle, and
	// fills the rest with black.
	FitPad = "pad"
)

// The order of the colours.
const (
	// ColourRGB is red, green, blue: the default for an input of three channels.
	ColourRGB = "rgb"
	// ColourBGR is blue, green, red, as in OpenCV and Caffe.
	ColourBGR = "bgr"
	// ColourGray is one channel, the brightness: the default for an input of one.
	ColourGray = "gray"
)

// ImageForm is the size and the values of the images that a model takes.
type ImageForm struct {
	// Width and Height are in pixels.
	Width, Height int
	// Fit is one of FitStretch, FitCrop and FitPad.
	Fit string
	// Colour is one of ColourRGB, ColourBGR and ColourGray. If it is "", the
	// number of the input's channels decides.
	Colour string
	// Low and High are the values of a dark and of a fully lit channel. The
	// default is 0 and 1, or 0 and 255 for an input of bytes.
	Low, High float64
	// Ranged reports whether the form gives Low and High.
	Ranged bool
	// Mean is subtracted from each channel in this range, and the difference is
	// divided by Std. Each has one value for all channels, or one per channel, or
	// is empty.
	Mean, Std []float64
}

// Example is a form to show in error messages.
const Example = "224x224 fit=crop range=-1..1"

var errSize = fmt.Errorf("it must begin with the width and height in pixels, each from 1 to %d", MaxSide)

// ParseImageForm reads a form. The error is a sentence that begins with "it".
func ParseImageForm(text string) (ImageForm, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return ImageForm{}, errSize
	}
	f := ImageForm{Fit: FitStretch, High: 1}
	var err error
	if f.Width, f.Height, err = size(words[0]); err != nil {
		return ImageForm{}, err
	}
	seen := map[string]bool{}
	for _, word := range words[1:] {
		key, value, ok := strings.Cut(word, "=")
		if !ok || seen[key] {
			return ImageForm{}, fmt.Errorf("it has the word %.40q; after the size come fit=, colour=, range=, mean= and std=, each once", word)
		}
		seen[key] = true
		if err := f.set(key, value); err != nil {
			return ImageForm{}, err
		}
	}
	if f.Colour == ColourGray && max(len(f.Mean), len(f.Std)) > 1 {
		return ImageForm{}, errors.New("it has several values in mean or std, and colour=gray has one channel")
	}
	return f, nil
}

func (f *ImageForm) set(key, value string) (err error) {
	switch key {
	case "fit":
		f.Fit, err = choice(key, value, FitStretch, FitCrop, FitPad)
	case "colour", "color":
		f.Colour, err = choice(key, value, ColourRGB, ColourBGR, ColourGray)
	case "range":
		f.Ranged = true
		f.Low, f.High, err = bounds(value)
	case "mean":
		f.Mean, err = channels(key, value)
	case "std":
		f.Std, err = channels(key, value)
		for _, v := range f.Std {
			if v <= 0 {
				return fmt.Errorf("it has std=%.60q; each value must be above 0", value)
			}
		}
	default:
		return fmt.Errorf("it has the word %.40q; after the size come fit=, colour=, range=, mean= and std=", key+"="+value)
	}
	return err
}

func size(word string) (width, height int, err error) {
	w, h, _ := strings.Cut(word, "x")
	width, wErr := strconv.Atoi(w)
	height, hErr := strconv.Atoi(h)
	if wErr != nil || hErr != nil || width < 1 || height < 1 || width > MaxSide || height > MaxSide {
		return 0, 0, errSize
	}
	return width, height, nil
}

func choice(key, value string, of ...string) (string, error) {
	for _, c := range of {
		if value == c {
			return c, nil
		}
	}
	return "", fmt.Errorf("it has %s=%.40q; %s is one of %s", key, value, key, strings.Join(of, ", "))
}

func bounds(value string) (low, high float64, err error) {
	l, h, ok := strings.Cut(value, "..")
	low, okLow := number(l)
	high, okHigh := number(h)
	if !ok || !okLow || !okHigh || low >= high {
		return 0, 0, fmt.Errorf("it has range=%.40q; it is what black and full colour become, as 0..1, -1..1 or 0..255", value)
	}
	return low, high, nil
}

// channels reads one value, or three.
func channels(key, value string) ([]float64, error) {
	var out []float64
	for text := range strings.SplitSeq(value, ",") {
		v, ok := number(text)
		if !ok || len(out) == 3 {
			return nil, fmt.Errorf("it has %s=%.60q; it is one number, or three with commas between them", key, value)
		}
		out = append(out, v)
	}
	if len(out) == 2 {
		return nil, fmt.Errorf("it has %s=%.60q; it is one number, or three with commas between them", key, value)
	}
	return out, nil
}

func number(text string) (float64, bool) {
	v, err := strconv.ParseFloat(text, 64)
	return v, err == nil && !math.IsNaN(v) && math.Abs(v) <= 1e6
}
