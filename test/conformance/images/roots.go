// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"

	"workload.openshift.io/kubernetes/cmd/images/rootfs"
)

// root is the root file system of a base of the lock file, with what no package has.
func root(base string, change func(*rootfs.Tree) error) layer {
	return layer{"root of " + base, func(ctx context.Context, b *builder) (*rootfs.Tree, error) {
		tree, _, err := b.Lock.Assemble(ctx, b.store, base, Platform)
		if err != nil {
			return nil, err
		}
		accounts(tree)
		if err := applets(ctx, tree, b.Dir); err != nil {
			return nil, fmt.Errorf("base %s: busybox: %w", base, err)
		}
		if change == nil {
			return tree, nil
		}
		return tree, change(tree)
	}}
}

const (
	passwd = "etc/passwd"
	group  = "etc/group"
)

// accounts adds what maintainer scripts of Debian's packages would, and the directories that programs
// expect.
func accounts(tree *rootfs.Tree) {
	tree.File(passwd, 0o644, []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"))
	tree.File(group, 0o644, []byte("root:x:0:\nnogroup:x:65534:\n"))
	tree.File("etc/nsswitch.conf", 0o644, []byte("passwd: files\ngroup: files\nhosts: files dns\n"))
	tree.Dir("home", 0o755)
	tree.Dir("root", 0o700)
	for _, dir := range []string{"tmp", "var/tmp"} {
		tree.Dir(dir, fs.ModeSticky|0o777)
	}
}

// applets adds a link for each applet of busybox whose name no package's program has. They fill in for
// what upstream's images, of Alpine, have from busybox as well: in agnhost's, for example, hexdump,
// hostname and tar.
func applets(ctx context.Context, tree *rootfs.Tree, dir string) error {
	entry, ok := tree.Get("usr/bin/busybox")
	if !ok {
		return nil
	}
	data, err := content(entry)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, "busybox-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(data)
	if err := errors.Join(err, file.Chmod(0o755), file.Close()); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, file.Name(), "--list")
	cmd.Args[0] = "busybox" // the name says which applet it is
	list, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("--list: %w", err)
	}
	for applet := range bytes.FieldsSeq(list) {
		_, inBin := tree.Get("usr/bin/" + string(applet))
		_, inSbin := tree.Get("usr/sbin/" + string(applet))
		if !inBin && !inSbin {
			tree.Symlink("usr/bin/"+string(applet), "busybox")
		}
	}
	return nil
}

// likeAlpine adds the user and the groups of agnhost's image. The lock file has coreutils and wget for it
// besides busybox: specs call mv -v, which Debian's busybox does not know, and wget -T, which crashes
// it. It has bash because the shell of that busybox prefers its own applets to other programs.
//
// The spec of image volumes takes etc/os-release of kitten's image for proof that the files are there,
// and looks for "Alpine Linux" in it. So Debian's file says in place of what the image is.
func likeAlpine(tree *rootfs.Tree) error {
	tree.Dir("home/user-defined-in-image", 0o755)
	return errors.Join(
		extend(tree, passwd, "user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh\n"),
		extend(tree, group, "user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n"),
		extend(tree, "usr/lib/os-release", "VARIANT=\"in place of Alpine Linux, for conformance specs\"\n"),
	)
}

// serving configures nginx as upstream's image does. Debian's configuration has its own user, root and
// logs.
func serving(tree *rootfs.Tree) error {
	tree.File("etc/nginx/nginx.conf", 0o644, []byte(nginxConfiguration))
	tree.Symlink("var/log/nginx/access.log", "/dev/stdout")
	tree.Symlink("var/log/nginx/error.log", "/dev/stderr")
	tree.File("usr/share/nginx/html/index.html", 0o644, []byte("<!DOCTYPE html>\n<title>Welcome to nginx!</title>\n<h1>Welcome to nginx!</h1>\n"))
	tree.Dir("var/lib/nginx", 0o755) // for temporary files
	return errors.Join(
		extend(tree, passwd, "nginx:x:101:101::/nonexistent:/bin/false\n"),
		extend(tree, group, "nginx:x:101:\n"),
	)
}

const nginxConfiguration = `user nginx;
worker_processes auto;
pid /run/nginx.pid;
error_log /var/log/nginx/error.log notice;
events {
    worker_connections 1024;
}
http {
    include /etc/nginx/mime.types;
    default_type application/octet-stream;
    access_log /var/log/nginx/access.log;
    server {
        listen 80;
        root /usr/share/nginx/html;
        index index.html;
    }
}
`

// extend adds to the end of a file, which need not be there.
func extend(tree *rootfs.Tree, name, text string) error {
	var data []byte
	if entry, ok := tree.Get(name); ok {
		var err error
		if data, err = content(entry); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	tree.File(name, 0o644, append(data, text...))
	return nil
}

func content(entry rootfs.Entry) ([]byte, error) {
	if !entry.Mode.IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	file, err := entry.Open()
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(file)
	return data, errors.Join(err, file.Close())
}
