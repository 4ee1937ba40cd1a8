// SPDX-License-Identifier: Apache-2.0
// swift-format-ignore-file: AlwaysUseLowerCamelCase

// The C library of Linux under the name of Darwin, with what the sources use of Darwin in addition, or what has another
// type there. The types are those of the headers of Darwin, as Swift imports them.
@_exported import Glibc

// MARK: Files

extension stat {
    public var st_mtimespec: timespec { self.st_mtim }
    public var st_ctimespec: timespec { self.st_ctim }
}

public var F_FULLFSYNC: Int32 { 51 }

// MARK: Sockets

public var SOCK_STREAM: Int32 { 1 }
public var SOCK_DGRAM: Int32 { 2 }
public var TCP_KEEPALIVE: Int32 { 0x10 }

// MARK: Processes

public var RUSAGE_SELF: Int32 { 0 }
public var RLIMIT_NOFILE: Int32 { 8 }

public func getrlimit(_ resource: Int32, _ limits: UnsafeMutablePointer<rlimit>!) -> Int32 { fatalError() }
public func setrlimit(_ resource: Int32, _ limits: UnsafePointer<rlimit>!) -> Int32 { fatalError() }

public typealias posix_spawn_file_actions_t = UnsafeMutableRawPointer
public typealias posix_spawnattr_t = UnsafeMutableRawPointer
public typealias SpawnActions = UnsafeMutablePointer<posix_spawn_file_actions_t?>
public typealias SpawnAttributes = UnsafeMutablePointer<posix_spawnattr_t?>

public var POSIX_SPAWN_CLOEXEC_DEFAULT: Int32 { 0x4000 }

@discardableResult public func posix_spawn_file_actions_init(_ actions: SpawnActions!) -> Int32 { fatalError() }
@discardableResult public func posix_spawn_file_actions_destroy(_ actions: SpawnActions!) -> Int32 { fatalError() }
@discardableResult public func posix_spawn_file_actions_adddup2(
    _ actions: SpawnActions!,
    _ file: Int32,
    _ new: Int32
) -> Int32 { fatalError() }
@discardableResult public func posix_spawn_file_actions_addinherit_np(
    _ actions: SpawnActions!,
    _ file: Int32
) -> Int32 { fatalError() }
@discardableResult public func posix_spawnattr_init(_ attributes: SpawnAttributes!) -> Int32 { fatalError() }
@discardableResult public func posix_spawnattr_destroy(_ attributes: SpawnAttributes!) -> Int32 { fatalError() }
@discardableResult public func posix_spawnattr_setsigmask(
    _ attributes: SpawnAttributes!,
    _ signals: UnsafePointer<sigset_t>!
) -> Int32 { fatalError() }
@discardableResult public func posix_spawnattr_setsigdefault(
    _ attributes: SpawnAttributes!,
    _ signals: UnsafePointer<sigset_t>!
) -> Int32 { fatalError() }
@discardableResult public func posix_spawnattr_setpgroup(_ attributes: SpawnAttributes!, _ group: pid_t) -> Int32 {
    fatalError()
}
@discardableResult public func posix_spawnattr_setflags(_ attributes: SpawnAttributes!, _ flags: Int16) -> Int32 {
    fatalError()
}
@discardableResult public func posix_spawn(
    _ pid: UnsafeMutablePointer<pid_t>!,
    _ path: UnsafePointer<CChar>!,
    _ actions: UnsafePointer<posix_spawn_file_actions_t?>!,
    _ attributes: UnsafePointer<posix_spawnattr_t?>!,
    _ arguments: UnsafePointer<UnsafeMutablePointer<CChar>?>!,
    _ environment: UnsafePointer<UnsafeMutablePointer<CChar>?>!
) -> Int32 { fatalError() }

// MARK: Locks

public struct os_unfair_lock_s {
    public init() {}
}

public func os_unfair_lock_lock(_ lock: UnsafeMutablePointer<os_unfair_lock_s>) {}
public func os_unfair_lock_unlock(_ lock: UnsafeMutablePointer<os_unfair_lock_s>) {}
