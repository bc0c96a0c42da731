package model

import (
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]ImageForm{
		"224x224":   {Width: 224, Height: 224, Fit: FitStretch, High: 1},
		" 32x64\t ": {Width: 32, Height: 64, Fit: FitStretch, High: 1},
		"224x224 fit=crop mean=0.485,0.456,0.406 std=0.229,0.224,0.225": {Width: 224, Height: 224, Fit: FitCrop, High: 1,
			Mean: []float64{.485, .456, .406}, Std: []float64{.229, .224, .225}},
		"299x299 range=-1..1 colour=bgr":          {Width: 299, Height: 299, Fit: FitStretch, Colour: ColourBGR, Low: -1, High: 1, Ranged: true},
		"28x28 color=gray fit=pad mean=.5 std=.5": {Width: 28, Height: 28, Fit: FitPad, Colour: ColourGray, High: 1, Mean: []float64{.5}, Std: []float64{.5}},
	} {
		if got, err := ParseImageForm(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Parse(%q) = %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, why := range map[string]string{
		"": "width and height", "true": "width and height", "224": "width and height", "224x": "width and height",
		"0x5": "width and height", "-1x5": "width and height", "5000x5": "width and height", "224x224x3": "width and height",
		"8x8 fit=cut": "fit is one of stretch, crop, pad", "8x8 colour=cmyk": "colour is one of",
		"8x8 crop": "after the size come", "8x8 fit=crop fit=pad": "each once", "8x8 nchw=1": "after the size come",
		"8x8 range=1": "range=", "8x8 range=1..0": "range=", "8x8 range=0..NaN": "range=",
		"8x8 mean=a": "mean=", "8x8 mean=1,2": "one number, or three", "8x8 std=0": "above 0", "8x8 std=1,1,1,1": "one number, or three",
		"8x8 colour=gray mean=1,2,3": "one channel", "8x8 mean=1e300": "mean=",
	} {
		if got, err := ParseImageForm(text); err == nil || !strings.Contains(err.Error(), why) || !strings.HasPrefix(err.Error(), "it ") {
			t.Errorf("Parse(%q) = %+v, %v; want an error with %q", text, got, err, why)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("224x224 fit=crop mean=0.485,0.456,0.406 std=0.229,0.224,0.225 range=-1..1 colour=bgr")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseImageForm(text)
		if err == nil && (got.Width < 1 || got.Height < 1 || got.Width > MaxSide || got.Height > MaxSide || got.Low >= got.High) {
			t.Errorf("Parse(%q) = %+v", text, got)
		}
	})
}
