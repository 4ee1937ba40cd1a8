// SPDX-License-Identifier: Apache-2.0
import Testing

@testable import HHSocket

@Suite struct HostNameTests {
    @Test(arguments: [
        ("example.com", "example.com"), ("EXAMPLE.com", "example.COM"), ("example.com.", "example.com"),
        ("example.com", "example.com."), ("im1.example.com", "*.example.com"), ("localhost", "localhost"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
    ])
    func nameIsWhatItIs(name: String, pattern: String) {
        #expect(HostName(name).matches(pattern))
    }

    @Test(arguments: [
        ("example.com", "example.org"), ("im1.example.com", "example.com"), ("example.com", "*.example.com"),
        ("a.b.example.com", "*.example.com"), ("im1.example.com", "im*.example.com"), ("im1.example.com", "*"),
        ("im1.example.com", "im1.*.com"), ("example.com", "*.com"), ("", ""), ("", "*"), ("example.com", ""),
        ("example.com", "example.com\0.evil.org"), ("evil", "*."), ("a..b", "a..b"),
    ])
    func otherNamesAreOthers(name: String, pattern: String) {
        #expect(!HostName(name).matches(pattern))
    }
}
