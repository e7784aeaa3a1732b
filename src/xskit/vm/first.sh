#!/bin/sh
# The guest's /init: loads modules, lays a tmpfs over this machine's root, and goes there. Run by busybox.
export PATH=/bin
/bin/busybox mkdir -p /proc /sys /dev /host /over /root
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev

port() { # the device of a virtio-serial port, by name; there is no udev to make links
  for candidate in /sys/class/virtio-ports/*; do
    if [ "$(cat "$candidate/name" 2>/dev/null)" = "xskit.$1" ]; then echo "/dev/${candidate##*/}"; fi
  done
}

fail() {
  echo "xskit: $*" >/dev/console
  control=$(port control)
  if [ -n "$control" ]; then echo "failed $*" >"$control"; sleep 1; fi
  poweroff -f
}

while read -r module; do
  insmod "/modules/$module.ko" || echo "xskit: module $module was refused" >/dev/console
done </modules/order

if grep -q xskit.probe /proc/cmdline; then
  echo "ready $(uname -r) $(nproc)" >"$(port control)"
  sleep 1
  poweroff -f
fi

options=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o "$options,cache=loose,ro" host /host || fail "this kernel cannot mount 9p over virtio"
mount -t tmpfs -o mode=755 over /over || fail "this kernel has no tmpfs"
mkdir /over/upper /over/work
mount -t overlay -o lowerdir=/host,upperdir=/over/upper,workdir=/over/work,index=off,xino=off root /root ||
  fail "this kernel cannot lay an overlay over 9p"
mount --move /proc /root/proc
mount --move /sys /root/sys
mount --move /dev /root/dev
mount -t tmpfs -o mode=755 run /root/run || fail "there is no /run to mount upon"
mkdir -p /root/run/xskit-vm/out /root/run/xskit-vm/written
mount --move /over /root/run/xskit-vm/written
mount -t 9p -o "$options,cache=none" out /root/run/xskit-vm/out || fail "the folder for results cannot be mounted"
cp /bin/busybox /second.sh /modules/folder /root/run/xskit-vm/
exec switch_root /root /run/xskit-vm/busybox sh /run/xskit-vm/second.sh
