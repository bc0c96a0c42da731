package origin

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/model/source"
)

const (
	// googleEndpoint answers S3's requests for Google Storage.
	googleEndpoint = "https://storage.googleapis.com"
	// DefaultRegion is that of servers of S3 that have none.
	DefaultRegion = "us-east-1"
	emptySum      = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	signedTime    = "20060102T150405Z"
)

// bucket is a bucket of S3, or of Google Storage, which answers the same requests.
type bucket struct {
	client           *Client
	name             string
	endpoint, region string
	with             Credentials
}

// lookBucket asks for an object, or for all below a prefix.
func (c *Client) lookBucket(ctx context.Context, u source.URI, with Credentials) (*Finding, error) {
	b := &bucket{client: c, name: u.Host, with: with, region: first(u.Region, with.Region, DefaultRegion)}
	b.endpoint = u.Endpoint
	if b.endpoint == "" {
		b.endpoint = "https://s3." + b.region + ".amazonaws.com"
		if u.Scheme == source.GS {
			b.endpoint = googleEndpoint
		}
	}
	if !u.Folder() {
		o, err := b.file(u.Path).look(ctx, u.Sum)
		if err != nil {
			return nil, err
		}
		if o.rangeable(0) {
			_ = o.First.Close()
			o.First = nil
		}
		o.Original = u.Name()
		if !o.keyed {
			o.MD5 = plainMD5(o.Tag)
		}
		return &Finding{Tag: o.Tag, Objects: []*Object{o}}, nil
	}
	return b.list(ctx, u.Path)
}

// first is the first text that is not empty.
func first(texts ...string) string {
	i := slices.IndexFunc(texts, func(s string) bool { return s != "" })
	if i < 0 {
		return ""
	}
	return texts[i]
}

// plainMD5 is the MD5 that an ETag is, "" if it is none: one of an object in several parts has a '-'.
func plainMD5(tag string) string {
	if digits := strings.Trim(tag, `"`); isDigest(digits, 32) {
		return digits
	}
	return ""
}

// file is an object as a file at a server.
func (b *bucket) file(key string) remote {
	return remote{client: b.client, secret: S3Secret, ranges: true, request: func(ctx context.Context) (*http.Request, error) {
		return b.get(ctx, key, nil)
	}}
}

// get makes a signed request for a key of the bucket.
func (b *bucket) get(ctx context.Context, key string, query url.Values) (*http.Request, error) {
	address := b.endpoint + "/" + b.name
	if key != "" {
		address += "/" + escape(key)
	}
	if query != nil {
		address += "?" + strings.ReplaceAll(query.Encode(), "+", "%20")
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	b.with.Sign(r, b.region, emptySum, time.Now())
	return r, nil
}

// escape escapes a key as the signature demands.
func escape(key string) string {
	parts := strings.Split(key, "/")
	for i, part := range parts {
		parts[i] = strings.ReplaceAll(url.QueryEscape(part), "+", "%20")
	}
	return strings.Join(parts, "/")
}

// UnsignedBody is the payload of a request whose body the signature does not cover.
const UnsignedBody = "UNSIGNED-PAYLOAD"

// Sign adds a signature of AWS, version 4, to a request. payload is the SHA-256 of its body, or [UnsignedBody]. Without
// a key the request stays anonymous.
func (w Credentials) Sign(r *http.Request, region, payload string, now time.Time) {
	if w.Key == "" {
		return
	}
	at := now.UTC().Format(signedTime)
	r.Header.Set("X-Amz-Date", at)
	r.Header.Set("X-Amz-Content-Sha256", payload)
	names := []string{"host", "x-amz-content-sha256", "x-amz-date"}
	values := map[string]string{"host": r.URL.Host, "x-amz-content-sha256": payload, "x-amz-date": at}
	if w.Session != "" {
		r.Header.Set("X-Amz-Security-Token", w.Session)
		names, values["x-amz-security-token"] = append(names, "x-amz-security-token"), w.Session
	}
	var headers strings.Builder
	for _, name := range names {
		headers.WriteString(name + ":" + values[name] + "\n")
	}
	signed := strings.Join(names, ";")
	canonical := strings.Join([]string{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, headers.String(), signed, payload}, "\n")
	scope := strings.Join([]string{at[:8], region, "s3", "aws4_request"}, "/")
	sum := sha256.Sum256([]byte(canonical))
	text := strings.Join([]string{"AWS4-HMAC-SHA256", at, scope, hex.EncodeToString(sum[:])}, "\n")
	key := []byte("AWS4" + w.Secret)
	for part := range strings.SplitSeq(scope, "/") {
		key = mac(key, part)
	}
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+w.Key+"/"+scope+", "+
		"SignedHeaders="+signed+", Signature="+hex.EncodeToString(mac(key, text)))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write([]byte(text)) // A hash takes everything.
	return h.Sum(nil)
}

// listing is S3's answer to a list of objects.
type listing struct {
	Contents []struct {
		Key  string
		Size int64
		ETag string
	}
	IsTruncated           bool
	NextContinuationToken string
}

// errPages refuses a list without an end.
var errPages = Fatal{fmt.Errorf("its server lists the folder in more than %d parts", maxPages)}

// list finds all objects below a prefix.
func (b *bucket) list(ctx context.Context, prefix string) (*Finding, error) {
	var objects []*Object
	var lines []string
	next := ""
	for range maxPages {
		query := url.Values{"list-type": {"2"}, "prefix": {prefix}}
		if next != "" {
			query.Set("continuation-token", next)
		}
		r, err := b.get(ctx, "", query)
		if err != nil {
			return nil, Fatal{err}
		}
		_, text, err := b.client.text(r, S3Secret)
		if err != nil {
			return nil, err
		}
		var page listing
		if err := xml.Unmarshal(text, &page); err != nil {
			return nil, Fatal{fmt.Errorf("%s does not answer as S3 does: %w", r.URL.Host, err)}
		}
		for _, one := range page.Contents {
			name, err := below(prefix, one.Key)
			if err != nil {
				return nil, err
			}
			if name == "" {
				continue
			}
			o := &Object{Name: name, Original: path.Base(one.Key), Size: one.Size, Tag: one.ETag, MD5: plainMD5(one.ETag)}
			file := b.file(one.Key)
			o.Open = file.opener(o)
			objects, lines = append(objects, o), append(lines, name+" "+one.ETag)
		}
		if next = page.NextContinuationToken; !page.IsTruncated || next == "" || len(objects) > MaxFiles {
			return folder(objects, lines)
		}
	}
	return nil, errPages
}
