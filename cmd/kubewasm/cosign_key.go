package main

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/crypto/nacl/secretbox"
	"golang.org/x/crypto/scrypt"
	"golang.org/x/term"
)

// encryptedKey is the content of a private key that cosign generate-key-pair wrote: PKCS #8
// in a box of NaCl, whose key is made of a password by scrypt.
type encryptedKey struct {
	KDF struct {
		Name   string `json:"name"`
		Params struct {
			N int `json:"N"`
			R int `json:"r"`
			P int `json:"p"`
		} `json:"params"`
		Salt []byte `json:"salt"`
	} `json:"kdf"`
	Cipher struct {
		Name  string `json:"name"`
		Nonce []byte `json:"nonce"`
	} `json:"cipher"`
	Ciphertext []byte `json:"ciphertext"`
}

// maxScryptBytes bounds the memory that a file may require. The files of cosign take 64 MiB.
const maxScryptBytes = 256 << 20

// decryptKey returns a private key in PEM without a password: data itself, unless it is encrypted
// as cosign does it. password is called for an encrypted one.
func decryptKey(data []byte, password func() ([]byte, error)) ([]byte, error) {
	block, _ := pem.Decode(data)
	// The second type is that of cosign before version 1.13.
	if block == nil || block.Type != "ENCRYPTED SIGSTORE PRIVATE KEY" && block.Type != "ENCRYPTED COSIGN PRIVATE KEY" {
		return data, nil
	}
	var e encryptedKey
	if err := json.Unmarshal(block.Bytes, &e); err != nil {
		return nil, fmt.Errorf("read encrypted key: %w", err)
	}
	kdf, params := e.KDF, e.KDF.Params
	var nonce [24]byte
	switch {
	case kdf.Name != "scrypt" || e.Cipher.Name != "nacl/secretbox":
		return nil, fmt.Errorf("read encrypted key: it is encrypted by %.40q and %.40q, want scrypt and nacl/secretbox", kdf.Name, e.Cipher.Name)
	case params.N < 2 || params.R < 1 || params.P < 1 || params.P > 16 || params.R > maxScryptBytes/128/params.N:
		return nil, fmt.Errorf("read encrypted key: scrypt has N=%d, r=%d, p=%d, want at most %d bytes of memory and p=16", params.N, params.R, params.P, maxScryptBytes)
	case len(e.Cipher.Nonce) != len(nonce):
		return nil, fmt.Errorf("read encrypted key: nonce has %d bytes, want %d", len(e.Cipher.Nonce), len(nonce))
	}
	secret, err := password()
	if err != nil {
		return nil, err
	}
	derived, err := scrypt.Key(secret, kdf.Salt, params.N, params.R, params.P, 32)
	if err != nil {
		return nil, fmt.Errorf("read encrypted key: %w", err)
	}
	copy(nonce[:], e.Cipher.Nonce)
	plain, ok := secretbox.Open(nil, e.Ciphertext, &nonce, (*[32]byte)(derived))
	if !ok {
		return nil, errors.New("decrypt key: the password is wrong, or the file was changed")
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: plain}), nil
}

// passwordVariable is cosign's.
const passwordVariable = "COSIGN_PASSWORD"

// askPassword returns the password of a key: that of the environment, or the one that a person
// types.
func askPassword(out io.Writer, name string) ([]byte, error) {
	if password, ok := os.LookupEnv(passwordVariable); ok {
		return []byte(password), nil
	}
	terminal := int(os.Stdin.Fd())
	if !term.IsTerminal(terminal) {
		return nil, fmt.Errorf("ask for the password: %s is not set, and the standard input is no terminal", passwordVariable)
	}
	fmt.Fprintf(out, "Password of %s: ", name)
	defer fmt.Fprintln(out)
	password, err := term.ReadPassword(terminal)
	if err != nil {
		return nil, fmt.Errorf("ask for the password: %w", err)
	}
	return password, nil
}
