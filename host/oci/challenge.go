package oci

import (
	"net/http"
	"strings"
)

// chooseChallenge leaves one of the challenges of an answer, among those that oras reads: Bearer
// before Basic, as clients of containers do. oras reads only the first one.
func chooseChallenge(header http.Header) {
	var chosen string
	for _, challenge := range challenges(header.Values("WWW-Authenticate")) {
		scheme, params, _ := strings.Cut(challenge, " ")
		switch {
		case strings.EqualFold(scheme, "Bearer") && strings.Contains(params, "realm="):
			header.Set("WWW-Authenticate", challenge)
			return
		case strings.EqualFold(scheme, "Basic") && chosen == "":
			chosen = challenge
		}
	}
	if chosen != "" {
		header.Set("WWW-Authenticate", chosen)
	}
}

// challenges splits headers into challenges, by RFC 9110, section 11.6.1: an element of the
// list begins a challenge unless it is a parameter, and the names of parameters are in lower
// case.
func challenges(headers []string) (all []string) {
	for _, header := range headers {
		began := false
		for _, element := range elements(header) {
			name, rest := httpToken(element)
			after := strings.TrimLeft(rest, " \t")
			isParameter := name != "" && strings.HasPrefix(after, "=")
			switch {
			case isParameter && began:
				all[len(all)-1] += separator(all[len(all)-1]) + strings.ToLower(name) + after
			case !isParameter && name != "":
				first, value := httpToken(after)
				all, began = append(all, name), true
				if value = strings.TrimLeft(value, " \t"); first != "" && strings.HasPrefix(value, "=") {
					all[len(all)-1] += " " + strings.ToLower(first) + value
				} else if after != "" {
					all[len(all)-1] += " " + after
				}
			}
		}
	}
	return all
}

// separator returns the text before the next parameter of a challenge.
func separator(challenge string) string {
	if strings.Contains(challenge, " ") {
		return ","
	}
	return " "
}

// elements splits a list at the commas that are outside of quotes.
func elements(list string) (all []string) {
	begin, quoted := 0, false
	for i := 0; i < len(list); i++ {
		switch c := list[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			all = append(all, strings.Trim(list[begin:i], " \t"))
			begin = i + 1
		}
	}
	return append(all, strings.Trim(list[begin:], " \t"))
}

// httpToken cuts a name of a scheme or a parameter from the begin of a text.
func httpToken(text string) (name, rest string) {
	end := strings.IndexAny(text, " \t=\"(),/:;<>?@[\\]{}")
	if end < 0 {
		return text, ""
	}
	return text[:end], text[end:]
}
