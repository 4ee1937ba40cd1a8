#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

/// The thread sanitizer, which does not see on Linux that what comes before a continuation is resumed comes before what
/// follows that: it would report what is handed over so.
enum ThreadSanitizer {
    /// Whether this process runs under it.
    static let isRunning: Bool = {
        guard let program = dlopen(nil, RTLD_NOW) else { return false }
        defer { dlclose(program) }
        return dlsym(program, "__tsan_init") != nil
    }()
}
