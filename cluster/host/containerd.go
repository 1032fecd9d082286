// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"workload.openshift.io/kubernetes/cluster/image"
)

// importImages imports the images into containerd.
func (c *Cluster) importImages(ctx context.Context) error {
	dir := c.Config.Images
	if dir == "" {
		dir = c.data("images")
		defer os.RemoveAll(dir)
		if err := image.Save(ctx, c.Config.Tree, dir); err != nil {
			return err
		}
	}
	archives, err := filepath.Glob(filepath.Join(dir, "*.tar"))
	if err != nil {
		return err
	}
	if c.Config.ControlPlaneImages != "" {
		for _, component := range []Component{c.APIServer, c.ControllerManager, c.Scheduler} {
			archives = append(archives, c.imageArchive(component.Name()))
		}
	}
	for _, archive := range archives {
		if err := c.ImportImage(ctx, archive); err != nil {
			return err
		}
	}
	return nil
}

// ImportImage unpacks the images of an archive, and has the node know them.
func (c *Cluster) ImportImage(ctx context.Context, archive string) error {
	return c.ctr(ctx, "images", "import", archive)
}

// RemoveImage has the node forget an image, and returns when its files are gone.
func (c *Cluster) RemoveImage(ctx context.Context, image string) error {
	return c.ctr(ctx, "images", "remove", "--sync", image)
}

// Tag gives an image of the node another name.
func (c *Cluster) Tag(ctx context.Context, image, name string) error {
	return c.ctr(ctx, "images", "tag", "--force", image, name)
}

func (c *Cluster) ctr(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, c.tool("ctr"), append([]string{"--address", c.socket(), "--namespace", "k8s.io"}, args...)...)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ctr %s: %w: %s", args[0], err, output)
	}
	return nil
}
