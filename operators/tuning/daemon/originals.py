# SPDX-License-Identifier: Apache-2.0
# TuneD that keeps the values it found in its storage file, so that the next one can give them back if this one is killed.
import os, pickle, runpy, tuned.storage as storage, tuned.plugins.plugin_sysctl as sysctl
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
def apply(self, instance, apply=sysctl.SysctlPlugin._instance_apply_static):  # before any is written
	self._storage.set(self._storage_key(instance.name), {o: v for o in instance._sysctl if (v := sysctl._read_sysctl(o)) is not None})
	apply(self, instance)
sysctl.SysctlPlugin._instance_apply_static, storage.PickleProvider = apply, Kept
runpy.run_path("/usr/sbin/tuned", run_name="__main__")
