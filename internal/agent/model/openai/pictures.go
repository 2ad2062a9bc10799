package openai

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"soma/internal/agent/model"
	"soma/message"
)

// Bounds of the images in one request: the newest ones, so many and so many bytes, encoded four thirds of that.
const (
	maxPictures     = 8
	maxPictureBytes = 8 << 20
	blindTime       = 10 * time.Minute // a model that has refused some is shown none: the next ones may be better
	imageTokens     = 1000             // what an image is taken to need where the endpoint reports no usage
)

// pictures are the images that a request shows. A nil one shows none.
type pictures struct {
	shown map[[2]int]string // data URIs by message and image; empty: its bytes are gone
	bytes int               // of all URIs
}

// pictures reads the images of a request that are shown: the newest results' first. The error is ctx's, or retryable.
func (c *Client) pictures(ctx context.Context, r model.Request) (*pictures, error) {
	if since, blind := c.blind.Load(r.Model); blind && time.Since(since.(time.Time)) < blindTime || r.Image == nil {
		return nil, nil
	}
	p := &pictures{shown: map[[2]int]string{}}
	left := int64(maxPictureBytes)
	for i := len(r.Messages) - 1; i >= 0; i-- {
		for n := len(r.Messages[i].Images) - 1; n >= 0; n-- {
			m := r.Messages[i].Images[n]
			if left -= m.Size; left < 0 || len(p.shown) == maxPictures {
				return p, nil
			}
			b, err := r.Image(ctx, m.Content)
			if err != nil {
				return nil, errors.Join(ctx.Err(), &model.Error{Class: model.Retryable, Words: "an image cannot be read: " + err.Error()})
			}
			uri := ""
			if b != nil {
				uri = "data:" + m.Media + ";base64," + base64.StdEncoding.EncodeToString(b)
			}
			p.shown[[2]int{i, n}] = uri
			p.bytes += len(uri)
		}
	}
	return p, nil
}

func (p *pictures) count() int {
	if p == nil {
		return 0
	}
	return len(p.shown)
}

func (p *pictures) size() int {
	if p == nil {
		return 0
	}
	return p.bytes
}

// of returns the parts of a user message that show the images of a result, and what the result says of those that are not shown:
// the protocol has no place for images in a result.
func (p *pictures) of(at int, m message.Message) (parts []any, left string) {
	var b strings.Builder
	for n, img := range m.Images {
		name := fmt.Sprintf("image %d", n+1)
		if img.Name != "" {
			name += " (" + img.Name + ")"
		}
		uri, ok := "", false
		if p != nil {
			uri, ok = p.shown[[2]int{at, n}]
		}
		switch {
		case p == nil:
			fmt.Fprintf(&b, "\n[%s not shown: the model takes none]", name)
		case !ok:
			fmt.Fprintf(&b, "\n[%s not repeated]", name)
		case uri == "":
			fmt.Fprintf(&b, "\n[%s is not kept any more]", name)
		default:
			parts = append(parts,
				map[string]any{"type": "text", "text": fmt.Sprintf("%s of call %s:", name, m.CallID)},
				map[string]any{"type": "image_url", "image_url": map[string]any{"url": uri}})
		}
	}
	return parts, b.String()
}

// takesNoImages reports whether a refusal may be about the images of the request.
func takesNoImages(err error) bool {
	var e *model.Error
	return errors.As(err, &e) && e.Class == model.BadRequest && e.Status >= 400
}
