package watchdog

import (
	"net/http"
	"net/url"
	"slices"
	"testing"
)

func TestRequestEnv(t *testing.T) {
	r := &http.Request{
		Method: "POST", Host: "function.example", ContentLength: -1, TransferEncoding: []string{"chunked"},
		URL: &url.URL{Path: "/a b", RawQuery: "q=1&p=%20"},
		Header: http.Header{
			"X-Forwarded-By": {"http://my.vpn.com"}, "Accept": {"text/html", "*/*"}, "Content-Type": {"text/plain"},
			"Proxy": {"http://evil.example"},
			// None of these is the request's.
			"Method": {"PUT"}, "Path": {"/b"}, "Host": {"other"}, "Query": {"q=2"}, "Content-Length": {"7"}, "Content_Length": {"8"},
			"Transfer-Encoding": {"gzip"},
		},
	}
	got := requestEnv(r)
	slices.Sort(got)
	want := []string{
		"Http_Accept=text/html, */*", "Http_ContentLength=-1", "Http_Content_Length=-1", "Http_Content_Type=text/plain",
		"Http_Host=function.example", "Http_Method=POST", "Http_Path=/a b", "Http_Query=q=1&p=%20",
		"Http_Transfer_Encoding=chunked", "Http_X_Forwarded_By=http://my.vpn.com",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	// No entry of an environment can hold a NUL.
	r.URL = &url.URL{Path: "/a\x00b"}
	if got := requestEnv(r); !slices.Contains(got, "Http_Path=/a%00b") {
		t.Errorf("got %q", got)
	}
}
