package pictures

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"strings"
)

// Protocol is how a terminal takes images.
type Protocol int

// The protocols. None: it takes none.
const (
	None Protocol = iota
	Kitty
	ITerm
)

// maxPixels bounds the images that are decoded here to be shown.
const maxPixels = 40_000_000

// Of returns how the terminal takes images that an environment tells of. What lies between it and a terminal that could
// (tmux, screen) does not hand images on.
func Of(env func(string) (string, bool)) Protocol {
	value := func(name string) string { v, _ := env(name); return v }
	term := value("TERM")
	switch {
	case value("TMUX") != "", value("STY") != "", term == "dumb", strings.HasPrefix(term, "screen"), strings.HasPrefix(term, "tmux"):
		return None
	case value("KITTY_WINDOW_ID") != "", term == "xterm-kitty", term == "xterm-ghostty":
		return Kitty
	}
	switch value("TERM_PROGRAM") {
	case "iTerm.app", "WezTerm", "mintty":
		return ITerm
	case "ghostty":
		return Kitty
	}
	return None
}

// Inline returns what makes a terminal show an image where its cursor stands; it is false for one that the terminal does not
// know. The bytes go as base64: they cannot speak to the terminal otherwise.
func Inline(p Protocol, media string, content []byte) (string, bool) {
	switch p {
	case Kitty:
		return kitty(media, content)
	case ITerm:
		text := base64.StdEncoding.EncodeToString(content)
		return fmt.Sprintf("\x1b]1337;File=inline=1;preserveAspectRatio=1;size=%d:%s\a", len(content), text), true
	}
	return "", false
}

// kittyChunk is how much base64 one sequence carries.
const kittyChunk = 4096

// kitty is for a terminal that takes PNG only.
func kitty(media string, content []byte) (string, bool) {
	switch media {
	case "image/png":
	case "image/jpeg":
		var ok bool
		if content, ok = asPNG(content); !ok {
			return "", false
		}
	default:
		return "", false
	}
	text := base64.StdEncoding.EncodeToString(content)
	var b strings.Builder
	for first := true; first || text != ""; first = false {
		n := min(len(text), kittyChunk)
		b.WriteString("\x1b_G")
		if first {
			b.WriteString("f=100,a=T,q=2,")
		}
		more := 0
		if n < len(text) {
			more = 1
		}
		fmt.Fprintf(&b, "m=%d;%s\x1b\\", more, text[:n])
		text = text[n:]
	}
	return b.String(), true
}

func asPNG(content []byte) ([]byte, bool) {
	size, _, err := image.DecodeConfig(bytes.NewReader(content))
	if err != nil || size.Width*size.Height > maxPixels {
		return nil, false
	}
	picture, err := jpeg.Decode(bytes.NewReader(content))
	if err != nil {
		return nil, false
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&out, picture); err != nil {
		return nil, false
	}
	return out.Bytes(), true
}
