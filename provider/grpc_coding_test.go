package provider

import (
	"bufio"
	"io"
	"net/http"
	"testing"
	"time"
)

// A stream that is told of an unknown compression while an earlier request is answered ends with that status, and every
// answer says which ones are known. Without the race detector a fault here ends the process only sometimes.
func TestGRPCUnknownCompression(t *testing.T) {
	server := serveHTTP2(t, newRig(t, nil), time.Minute, false)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	const empty, compressed = "\x00\x00\x00\x00\x00", "\x01\x00\x00\x00\x01x"
	for _, apart := range []bool{true, false, false, false, false} {
		reader, writer := io.Pipe()
		r, err := http.NewRequestWithContext(t.Context(), "POST", server.URL+"/"+inferService+"/ModelStreamInfer", reader)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Content-Type": {"application/grpc"}, "Grpc-Encoding": {"snappy"}}
		go func() {
			if apart {
				_, _ = io.WriteString(writer, empty) // It fails if the server has ended the call, as the test finds.
			} else {
				_, _ = io.WriteString(writer, empty+compressed)
				writer.Close()
			}
		}()
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		answer := bufio.NewReader(resp.Body)
		if _, err := answer.Peek(1); err != nil {
			t.Error(err)
		}
		if apart { // The first request is answered already.
			_, _ = io.WriteString(writer, compressed)
			writer.Close()
		}
		_, _ = io.Copy(io.Discard, answer)
		resp.Body.Close()
		if status, known := resp.Trailer.Get("Grpc-Status"), resp.Header.Get("Grpc-Accept-Encoding"); status != "12" || known != "identity,gzip" {
			t.Errorf("the call ends with %q and says that %q are known", status, known)
		}
	}
}
