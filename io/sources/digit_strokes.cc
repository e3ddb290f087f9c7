#include "io/sources/digit_strokes.h"

namespace sluice {
namespace {

constexpr StrokePoint k0a1[] = {{50, 5},  {26, 18}, {17, 50},
                                {26, 82}, {50, 95}, {74, 82},
                                {83, 50}, {74, 18}, {50, 5}};
constexpr Stroke k0a[] = {k0a1};
constexpr StrokePoint k0b1[] = {{64, 10}, {40, 8},  {22, 38},
                                {27, 78}, {50, 95}, {74, 76},
                                {79, 40}, {62, 9},  {44, 12}};
constexpr Stroke k0b[] = {k0b1};
constexpr Glyph k0[] = {k0a, k0b};

constexpr StrokePoint k1a1[] = {{50, 4}, {50, 50}, {50, 96}};
constexpr Stroke k1a[] = {k1a1};
constexpr StrokePoint k1b1[] = {{30, 30}, {54, 5}};
constexpr StrokePoint k1b2[] = {{54, 5}, {53, 50}, {52, 96}};
constexpr Stroke k1b[] = {k1b1, k1b2};
constexpr StrokePoint k1c1[] = {{32, 26}, {52, 5}};
constexpr StrokePoint k1c2[] = {{52, 5}, {52, 95}};
constexpr StrokePoint k1c3[] = {{28, 95}, {76, 95}};
constexpr Stroke k1c[] = {k1c1, k1c2, k1c3};
constexpr Glyph k1[] = {k1a, k1b, k1c};

constexpr StrokePoint k2a1[] = {{22, 28}, {32, 10}, {54, 5}, {74, 19},
                                {71, 42}, {48, 68}, {21, 93}};
constexpr StrokePoint k2a2[] = {{21, 93}, {50, 92}, {82, 93}};
constexpr Stroke k2a[] = {k2a1, k2a2};
constexpr StrokePoint k2b1[] = {{24, 24}, {42, 6},  {68, 12}, {71, 38},
                                {48, 70}, {27, 91}, {18, 80}, {34, 75},
                                {58, 89}, {84, 86}};
constexpr Stroke k2b[] = {k2b1};
constexpr Glyph k2[] = {k2a, k2b};

constexpr StrokePoint k3a1[] = {
    {23, 15}, {48, 5}, {71, 17}, {66, 38}, {42, 47}};
constexpr StrokePoint k3a2[] = {
    {42, 47}, {70, 54}, {78, 74}, {58, 94}, {21, 85}};
constexpr Stroke k3a[] = {k3a1, k3a2};
constexpr StrokePoint k3b1[] = {{22, 8}, {48, 7}, {76, 8}};
constexpr StrokePoint k3b2[] = {{76, 8}, {60, 26}, {46, 42}};
constexpr StrokePoint k3b3[] = {
    {46, 42}, {72, 52}, {77, 76}, {52, 95}, {21, 85}};
constexpr Stroke k3b[] = {k3b1, k3b2, k3b3};
constexpr StrokePoint k3c1[] = {{24, 12}, {52, 5},  {68, 22},
                                {54, 42}, {42, 46}, {62, 50},
                                {76, 70}, {56, 95}, {22, 90}};
constexpr Stroke k3c[] = {k3c1};
constexpr Glyph k3[] = {k3a, k3b, k3c};

constexpr StrokePoint k4a1[] = {{32, 6}, {26, 30}, {20, 54}};
constexpr StrokePoint k4a2[] = {{20, 54}, {50, 55}, {84, 53}};
constexpr StrokePoint k4a3[] = {{66, 8}, {64, 50}, {62, 96}};
constexpr Stroke k4a[] = {k4a1, k4a2, k4a3};
constexpr StrokePoint k4b1[] = {{62, 4}, {40, 34}, {16, 64}};
constexpr StrokePoint k4b2[] = {{16, 64}, {50, 64}, {86, 64}};
constexpr StrokePoint k4b3[] = {{62, 4}, {62, 50}, {62, 96}};
constexpr Stroke k4b[] = {k4b1, k4b2, k4b3};
constexpr StrokePoint k4c1[] = {
    {24, 8}, {22, 36}, {36, 53}, {60, 48}, {73, 12}};
constexpr StrokePoint k4c2[] = {{73, 10}, {69, 50}, {63, 96}};
constexpr Stroke k4c[] = {k4c1, k4c2};
constexpr Glyph k4[] = {k4a, k4b, k4c};

constexpr StrokePoint k5a1[] = {{76, 7}, {54, 7}, {32, 7}};
constexpr StrokePoint k5a2[] = {{32, 7}, {30, 26}, {27, 45}};
constexpr StrokePoint k5a3[] = {{27, 45}, {52, 37}, {77, 55},
                                {72, 82}, {46, 95}, {19, 86}};
constexpr Stroke k5a[] = {k5a1, k5a2, k5a3};
constexpr StrokePoint k5b1[] = {{30, 10}, {30, 44}, {58, 42},
                                {77, 62}, {64, 91}, {22, 89}};
constexpr StrokePoint k5b2[] = {{30, 9}, {54, 9}, {80, 6}};
constexpr Stroke k5b[] = {k5b1, k5b2};
constexpr Glyph k5[] = {k5a, k5b};

constexpr StrokePoint k6a1[] = {{70, 6},  {42, 22}, {24, 56},
                                {31, 87}, {55, 95}, {75, 77},
                                {63, 55}, {38, 58}, {26, 74}};
constexpr Stroke k6a[] = {k6a1};
constexpr StrokePoint k6b1[] = {{46, 4},  {29, 44}, {26, 76}, {44, 95},
                                {68, 89}, {73, 67}, {52, 54}, {28, 68}};
constexpr Stroke k6b[] = {k6b1};
constexpr Glyph k6[] = {k6a, k6b};

constexpr StrokePoint k7a1[] = {{20, 10}, {48, 9}, {79, 10}};
constexpr StrokePoint k7a2[] = {{79, 10}, {58, 46}, {42, 96}};
constexpr Stroke k7a[] = {k7a1, k7a2};
constexpr StrokePoint k7b1[] = {{20, 10}, {48, 9}, {79, 10}};
constexpr StrokePoint k7b2[] = {{79, 10}, {60, 46}, {46, 96}};
constexpr StrokePoint k7b3[] = {{34, 52}, {52, 50}, {74, 51}};
constexpr Stroke k7b[] = {k7b1, k7b2, k7b3};
constexpr StrokePoint k7c1[] = {{19, 26}, {21, 11}};
constexpr StrokePoint k7c2[] = {{21, 11}, {50, 12}, {78, 8}};
constexpr StrokePoint k7c3[] = {{78, 8}, {54, 52}, {46, 96}};
constexpr Stroke k7c[] = {k7c1, k7c2, k7c3};
constexpr Glyph k7[] = {k7a, k7b, k7c};

constexpr StrokePoint k8a1[] = {{71, 20}, {52, 5},  {30, 17}, {37, 38},
                                {62, 55}, {75, 76}, {50, 95}, {26, 78},
                                {38, 57}, {63, 39}, {71, 20}};
constexpr Stroke k8a[] = {k8a1};
constexpr StrokePoint k8b1[] = {{50, 48}, {28, 31}, {35, 8},
                                {62, 8},  {73, 29}, {50, 48}};
constexpr StrokePoint k8b2[] = {{50, 48}, {24, 68}, {31, 92},
                                {66, 94}, {77, 69}, {50, 48}};
constexpr Stroke k8b[] = {k8b1, k8b2};
constexpr Glyph k8[] = {k8a, k8b};

constexpr StrokePoint k9a1[] = {{72, 24}, {52, 6},  {28, 19},
                                {28, 44}, {52, 53}, {72, 30}};
constexpr StrokePoint k9a2[] = {{73, 22}, {71, 58}, {62, 96}};
constexpr Stroke k9a[] = {k9a1, k9a2};
constexpr StrokePoint k9b1[] = {{74, 26}, {51, 5},  {26, 25},
                                {36, 51}, {62, 47}, {74, 26}};
constexpr StrokePoint k9b2[] = {{74, 24}, {76, 64}, {55, 95}, {28, 86}};
constexpr Stroke k9b[] = {k9b1, k9b2};
constexpr Glyph k9[] = {k9a, k9b};

constexpr std::span<const Glyph> kGlyphs[] = {k0, k1, k2, k3, k4,
                                              k5, k6, k7, k8, k9};

}  // namespace

std::span<const Glyph> GlyphsOf(int digit) {
  return kGlyphs[digit];
}

}  // namespace sluice
