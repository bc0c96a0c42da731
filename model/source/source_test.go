package source_test

import (
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model/source"
)

const sum = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

func TestParse(t *testing.T) {
	for text, want := range map[string]source.URI{
		"https://models.example.com/a/model.onnx#sha256=" + strings.ToUpper(sum): {Scheme: "https", Host: "models.example.com", Path: "/a/model.onnx", Sum: sum},
		"HTTPS://Models.example.com:8443/m.zip?token=x&y=z":                      {Scheme: "https", Host: "models.example.com:8443", Path: "/m.zip", Query: "token=x&y=z"},
		"http://127.0.0.1:9/m.onnx":                                              {Scheme: "http", Host: "127.0.0.1:9", Path: "/m.onnx"},
		"https://[::1]:9/m.onnx":                                                 {Scheme: "https", Host: "[::1]:9", Path: "/m.onnx"},
		"s3://models/team/model.onnx":                                            {Scheme: "s3", Host: "models", Path: "team/model.onnx"},
		"s3://models/team/?endpoint=http://minio:9000&region=eu-central-1":       {Scheme: "s3", Host: "models", Path: "team/", Endpoint: "http://minio:9000", Region: "eu-central-1"},
		"s3://models":                                 {Scheme: "s3", Host: "models"},
		"s3://models/my%20model.onnx":                 {Scheme: "s3", Host: "models", Path: "my model.onnx"},
		"gs://models/m.onnx":                          {Scheme: "gs", Host: "models", Path: "m.onnx"},
		"oci://registry.example.com/team/m":           {Scheme: "oci", Host: "registry.example.com", Repository: "team/m", Revision: "latest"},
		"oci://registry:5000/m:v1":                    {Scheme: "oci", Host: "registry:5000", Repository: "m", Revision: "v1"},
		"oci://r.example.com/m:v1@sha256:" + sum:      {Scheme: "oci", Host: "r.example.com", Repository: "m", Revision: "sha256:" + sum},
		"hf://onnx-community/resnet/onnx/model.onnx":  {Scheme: "hf", Repository: "onnx-community/resnet", Revision: "main", Path: "onnx/model.onnx"},
		"hf://a/b@v1.0/":                              {Scheme: "hf", Repository: "a/b", Revision: "v1.0"},
		"hf://a/b@v1.0/m.onnx?endpoint=https://hub.x": {Scheme: "hf", Repository: "a/b", Revision: "v1.0", Path: "m.onnx", Endpoint: "https://hub.x"},
		"file:///srv/models/m.onnx":                   {Scheme: "file", Path: "/srv/models/m.onnx"},
		"pvc://models/team/m.onnx":                    {Scheme: "pvc", Host: "models", Path: "team/m.onnx"},
	} {
		got, err := source.Parse(text)
		if err != nil || got != want {
			t.Errorf("Parse(%q) = %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, part := range map[string]string{
		"ftp://x/m.onnx":                                     "begin with https://",
		"model.onnx":                                         "begin with https://",
		"https:///m.onnx":                                    "host",
		"https://x.example.com/":                             "a file",
		"https://user:pass@x.example.com/m.onnx":             "secret",
		"s3://key@bucket/m.onnx":                             "secret",
		"https://x.example.com/m.onnx#sha256=12":             "64 hexadecimal",
		"https://x.example.com/m.onnx#md5=12":                "sha256=",
		"https://x.example.com/a b.onnx":                     "%20",
		"https://x.example.com/%zz":                          "hexadecimal",
		"s3://Bucket/x":                                      "bucket",
		"s3://bucket/a//b":                                   "empty part",
		"s3://bucket/a/../b":                                 "..",
		"s3://bucket/%2e%2e/b":                               "..",
		"s3://bucket/a?version=3":                            "no option",
		"s3://bucket/a?endpoint=ftp://x":                     "endpoint",
		"s3://bucket/a?endpoint=http://x/y":                  "endpoint",
		"s3://bucket/folder/#sha256=" + sum:                  "folder",
		"oci://r.example.com/m@sha256:12":                    "digest",
		"oci://r.example.com/M:v1":                           "REPOSITORY",
		"oci://r.example.com/m:v1#sha256=" + sum:             "digest",
		"hf://owner":                                         "OWNER/NAME",
		"hf://a/b@/m.onnx":                                   "@",
		"file://models/m.onnx":                               "absolute",
		"pvc:///m.onnx":                                      "claim",
		"https://x.example.com/" + strings.Repeat("a", 5000): "4096",
	} {
		_, err := source.Parse(text)
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("Parse(%q): %v, want an error with %q", text, err, part)
		}
	}
}

// TestStringHidesQuery: a presigned URI's query is a credential.
func TestStringHidesQuery(t *testing.T) {
	u, err := source.Parse("https://x.example.com/m.onnx?X-Amz-Signature=secret#sha256=" + sum)
	if err != nil || strings.Contains(u.String(), "secret") || !strings.Contains(u.Key(), "secret") {
		t.Errorf("String %q, Key %q, %v", u, u.Key(), err)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"https://models.example.com/a/model.onnx?q#sha256=" + sum, "s3://models/team/?endpoint=http://minio:9000&region=x",
		"oci://r.example.com/m:v1@sha256:" + sum, "hf://a/b@v1.0/m.onnx", "file:///srv/m.onnx", "pvc://models/m.onnx", "gs://b/%41",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := source.Parse(text)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without a text")
			}
			return
		}
		for part := range strings.SplitSeq(u.Path, "/") {
			if (part == ".." || part == ".") && u.Scheme != source.HTTPS && u.Scheme != source.HTTP {
				t.Errorf("%q leads elsewhere: %+v", text, u)
			}
		}
		if u.Sum != "" && (len(u.Sum) != 64 || strings.ToLower(u.Sum) != u.Sum) {
			t.Errorf("%q has the sum %q", text, u.Sum)
		}
		if u.Folder() && u.Sum != "" {
			t.Errorf("%q is a folder with a sum", text)
		}
		if again, err := source.Parse(text); err != nil || again != u {
			t.Errorf("%q is %+v, then %+v, %v", text, u, again, err)
		}
	})
}
