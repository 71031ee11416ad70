// The SDK for guests in C.
#pragma once
