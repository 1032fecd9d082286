# SPDX-License-Identifier: Apache-2.0
# TuneD that keeps the values it found in its storage file, so that the next one can give them back if this one is killed.
import glob, os, pickle, runpy, tuned.storage as storage
from tuned.plugins import plugin_sysctl, plugin_sysfs
class Kept(storage.PickleProvider):
	def __init__(self):
		super().__init__()
		self.load()
		self.found = {(space, key) for space in self._data for key in self._data[space]}
	def set(self, space, key, value):
		if (space, key) not in self.found:  # else the value that there is now is not the original one
			self.save(super().set(space, key, value))
	def unset(self, space, key):
		self.save(self.found.discard((space, key)), super().unset(space, key))
	def save(self, *_):
		with open(self._path + ".new", "wb") as file: pickle.dump(self._data, file)
		os.rename(self._path + ".new", self._path)
def sysctl(self, instance, apply=plugin_sysctl.SysctlPlugin._instance_apply_static):  # it keeps them after it has written
	self._storage.set(self._storage_key(instance.name), {o: v for o in instance._sysctl if (v := plugin_sysctl._read_sysctl(o)) is not None})
	apply(self, instance)
def sysfs(self, instance, apply=plugin_sysfs.SysfsPlugin._instance_apply_static):  # it keeps none
	self._storage.set(self._storage_key(instance.name), {f: self._read_sysfs(f) for p in instance._sysfs for f in glob.iglob(p) if self._check_sysfs(f)})
	apply(self, instance)
	instance._sysfs_original = self._storage.get(self._storage_key(instance.name))
plugin_sysctl.SysctlPlugin._instance_apply_static, plugin_sysfs.SysfsPlugin._instance_apply_static = sysctl, sysfs
plugin_sysfs.SysfsPlugin._instance_cleanup = plugin_sysctl.SysctlPlugin._instance_cleanup  # it forgets them
storage.PickleProvider = Kept
runpy.run_path("/usr/sbin/tuned", run_name="__main__")
