package disturb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	restwatch "k8s.io/client-go/rest/watch"
)

const (
	jsonType     = "application/json"
	protobufType = "application/vnd.kubernetes.protobuf;stream=watch"
)

// encoded returns events as an API server encodes them.
func encoded(t *testing.T, contentType string, names ...string) []byte {
	t.Helper()
	media := jsonType
	if contentType == protobufType {
		media = "application/vnd.kubernetes.protobuf"
	}
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), media)
	if !ok {
		t.Fatalf("no serializer for %s", media)
	}
	var out bytes.Buffer
	writer := info.StreamSerializer.Framer.NewFrameWriter(&out)
	encoder := restwatch.NewEncoder(streaming.NewEncoder(writer, info.StreamSerializer.Serializer), scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion))
	for _, name := range names {
		if err := encoder.Encode(&watch.Event{Type: watch.Added, Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}}); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// decoder reads events as a client does.
func decoder(contentType string, events []byte) *restwatch.Decoder {
	media := jsonType
	if contentType == protobufType {
		media = "application/vnd.kubernetes.protobuf"
	}
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), media)
	reader := info.StreamSerializer.Framer.NewFrameReader(io.NopCloser(bytes.NewReader(events)))
	return restwatch.NewDecoder(streaming.NewDecoder(reader, info.StreamSerializer.Serializer), scheme.Codecs.UniversalDeserializer())
}

func TestFramesAreTakenApart(t *testing.T) {
	for _, contentType := range []string{jsonType, protobufType} {
		frames, ok := newFraming(contentType, bytes.NewReader(encoded(t, contentType, "a", "b")))
		if !ok {
			t.Fatalf("%s is not known", contentType)
		}
		for _, want := range []string{"a", "b"} {
			event, err := frames.next()
			if err != nil {
				t.Fatalf("%s: %v", contentType, err)
			}
			kind, object, err := decoder(contentType, event).Decode()
			if err != nil || kind != watch.Added || object.(*corev1.ConfigMap).Name != want {
				t.Errorf("%s: %v of %v, %v; want %s", contentType, kind, object, err, want)
			}
		}
		if _, err := frames.next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v behind the last event, want its end", contentType, err)
		}
	}
}

func TestClientsUnderstandExpired(t *testing.T) {
	for _, contentType := range []string{jsonType, protobufType} {
		frames, _ := newFraming(contentType, nil)
		event, err := frames.expired()
		if err != nil {
			t.Fatal(err)
		}
		kind, object, err := decoder(contentType, event).Decode()
		status, ok := object.(*metav1.Status)
		if err != nil || kind != watch.Error || !ok || status.Code != 410 || status.Reason != metav1.StatusReasonExpired {
			t.Errorf("%s: %v of %v, %v; want an error 410", contentType, kind, object, err)
		}
	}
}

func TestFramesThatAreNone(t *testing.T) {
	if _, ok := newFraming("application/cbor-seq", nil); ok {
		t.Error("an unknown framing is known")
	}
	if _, ok := newFraming(";", nil); ok {
		t.Error("no media type is one")
	}
	for name, body := range map[string][]byte{
		"cut in its length": {0, 0}, "cut in its body": append(binary.BigEndian.AppendUint32(nil, 9), 1, 2), "too large": {255, 255, 255, 255},
	} {
		frames, _ := newFraming(protobufType, bytes.NewReader(body))
		if event, err := frames.next(); err == nil {
			t.Errorf("%s: %d bytes, want an error", name, len(event))
		}
	}
}

// For any body, the framing returns the bytes of the body unchanged, until the first error.
func FuzzFrames(f *testing.F) {
	f.Add([]byte(`{"type":"ADDED"}{}`), true)
	f.Add([]byte{0, 0, 0, 1, 7}, false)
	f.Fuzz(func(t *testing.T, body []byte, asJSON bool) {
		contentType := protobufType
		if asJSON {
			contentType = jsonType
		}
		frames, _ := newFraming(contentType, bytes.NewReader(body))
		var out []byte
		for {
			event, err := frames.next()
			if err != nil {
				break
			}
			out = append(out, event...)
		}
		if !asJSON && !bytes.HasPrefix(body, out) {
			t.Errorf("%q became %q", body, out)
		}
	})
}
