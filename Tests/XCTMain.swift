// SPDX-License-Identifier: Apache-2.0

import Testing

/// The entry point of the tests on Linux.
///
/// Without this file, SwiftPM would look for tests of XCTest, of which there are none, in the compiler's index. The
/// Makefile builds without an index, which takes a tenth less time.
@main
enum TestRunner {
    static func main() async {
        // `swift test` runs the program twice, the first time for XCTest.
        if CommandLine.arguments.contains("xctest") { return }
        await Testing.__swiftPMEntryPoint() as Never
    }
}
